// State of a plan that lies in several processes of a job: who holds what, and how it comes to those that need it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/state_arena.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

namespace gradloom {

// The processes that hold a state tensor, ascending; at least one. All do where each runs all of the plan by itself.
std::vector<int> HoldersOf(const StateTensor& state, const Plan& plan, const Communicator& communicator);

// Whether all processes hold all state, and whether process 0 does. Null: one process by itself, which does.
bool EachHoldsAll(const Plan& plan, const Communicator* communicator);
bool FirstHoldsAll(const Plan& plan, const Communicator* communicator);

// All processes of a job call these together, with sessions of one plan.

// Makes a partial state whole on the first rank that has a part, in the order of the ranks, and zero on the others. Null: one process.
void JoinPartsOf(const StateTensor& state, const Plan& plan, Communicator* communicator, StateArena& arena);

// A tensor of the state by its name, read when it is asked for.
using ReadState = std::function<Tensor(const std::string& name)>;

// Process 0's state for all that hold it, a tensor at a time. What process 0 holds none of is what `given`, of process 0, reads; empty:
// from the first process that holds it.
void SpreadState(Session& session, Communicator& communicator, const ReadState& given);

// Of process 0: all state, a tensor at a time, so that it has memory for its own part and no more. The others are in GiveState until End.
class StateOfJob {
 public:
  // Both are borrowed. Null: of one process by itself.
  StateOfJob(const Session& session, Communicator* communicator) : session_(session), communicator_(communicator) {}

  // From the first process that holds it. Throws Error(kConfig) for an unknown name, Error(kPeer).
  Tensor Read(const std::string& name);
  void End();

 private:
  const Session& session_;
  Communicator* const communicator_;
};

// Of the other processes: gives process 0 what it asks for, until it is through. Throws Error(kPeer).
void GiveState(const Session& session, Communicator& communicator);

}  // namespace gradloom

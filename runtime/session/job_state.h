// State of a plan that is distributed over the processes of a job: which process holds what, and how it is exchanged.
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

// The processes that hold a state tensor, ascending; at least one. All of them if each runs the whole plan.
std::vector<int> HoldersOf(const StateTensor& state, const Plan& plan, const Communicator& communicator);

// Whether all processes hold all state, and whether process 0 does. `communicator` null: a single process, which does.
bool EachProcessHoldsState(const Plan& plan, const Communicator* communicator);
bool FirstProcessHoldsState(const Plan& plan, const Communicator* communicator);

// All processes of a job must call the following functions together, with sessions of one plan.

// Sums a partial state on the first rank that has a part, in the order of the ranks, and sets it to zero on the others. `communicator`
// null: one process.
void JoinPartsOf(const StateTensor& state, const Plan& plan, Communicator* communicator, StateArena& arena);

// Reads a tensor of the state by name, on demand.
using ReadState = std::function<Tensor(const std::string& name)>;

// Sends process 0's state to all processes that hold it, a tensor at a time. Tensors that process 0 does not hold are read by `given` in
// process 0; if it is empty, the first process that holds a tensor sends it.
void BroadcastState(Session& session, Communicator& communicator, const ReadState& given);

// For process 0: reads all state, a tensor at a time, so that it needs memory only for its own part and one tensor. The other processes are
// in SendState until End.
class StateOfJob {
 public:
  // Both are borrowed. `communicator` null: a single process.
  StateOfJob(const Session& session, Communicator* communicator) : session_(session), communicator_(communicator) {}

  // Reads from the first process that holds it. Throws Error(kConfig) for an unknown name, Error(kPeer).
  Tensor Read(const std::string& name);
  void End();

 private:
  const Session& session_;
  Communicator* const communicator_;
};

// For the other processes: sends process 0 the tensors that it requests, until its End. Throws Error(kPeer).
void SendState(const Session& session, Communicator& communicator);

}  // namespace gradloom

// State of a plan that lies in several processes of a job: who holds what, and how it comes to those that need it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

namespace gradloom {

// The processes that hold a state tensor, ascending; at least one. All do where each runs all of the plan by itself.
std::vector<int> HoldersOf(const StateTensor& state, const Plan& plan, const Communicator& communicator);

// Whether all processes hold all state, and whether process 0 does. Null: one process by itself, which does.
bool EachHoldsAll(const Plan& plan, const Communicator* communicator);
bool FirstHoldsAll(const Plan& plan, const Communicator* communicator);

// All processes of a job call these together, with sessions of one plan.

// Process 0's state for all that hold it. What process 0 holds none of is from `given`, of process 0, by name; null: from the first process
// that holds it.
void SpreadState(Session& session, Communicator& communicator, const std::map<std::string, TensorView>* given);

// All state by name, for process 0; the others get nothing. Null: of one process by itself.
std::map<std::string, Tensor> GatherState(const Session& session, Communicator* communicator);

}  // namespace gradloom

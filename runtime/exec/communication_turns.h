// The order in which the processes of a job issue what their devices do together.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "runtime/plan/plan.h"

namespace gradloom {

// By rank and index in its program: for each collective and transfer of an entry that involves ranks which this process holds and others,
// its turn, from 0. The order is the same in all processes: that of a simulation of the entry, in which an operation takes place when all
// its ranks have reached it. NCCL connects processes in their first operation, for which each waits on the host, so a process that issued
// operations in another order could wait for a peer that waits for an operation which this process has yet to issue.
std::map<std::pair<size_t, int>, int> CommunicationTurns(const Plan& plan, const Entry& entry,
                                                         const std::function<bool(size_t rank)>& holds);

}  // namespace gradloom

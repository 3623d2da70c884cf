// Checks whether the CPU devices of a plan fit this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kLimit) if the devices of these ranks would have too many threads in this process, or if several of them need more memory
// than is free; Error(kResource) if a single one does. `shared_bytes`: of the state of a single device, what lies in memory that
// several processes share: who makes it checks that it fits (CheckHosts).
void CheckMachine(const Plan& plan, RankRange own, int64_t shared_bytes = 0);

// The host memory of the CPU devices of these ranks; 0 for other devices.
int64_t HostBytesOf(const Plan& plan, RankRange own);

// The memory that a process of a job is about to allocate.
struct HostMemoryRequest {
  std::string host;
  int64_t wanted_bytes = 0;
  int64_t free_bytes = 0;  // of the host, before any process of the job has allocated
};

// `claims`: by process. Throws Error(kLimit) for a host on which several processes together want more than it has.
void CheckHosts(std::span<const HostMemoryRequest> claims);

}  // namespace gradloom

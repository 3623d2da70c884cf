// Whether the CPU devices of a plan fit the machine that is to run them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/comm/rank_range.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kLimit) where the devices of these ranks, which are threads of this process, would be more threads than are sensible, or
// where several of them need more memory than is free. What a single device cannot have is told when it takes it (HostArena).
void CheckMachine(const Plan& plan, RankRange own);

// The host memory of the CPU devices of these ranks; of other devices none.
int64_t HostBytesOf(const Plan& plan, RankRange own);

// A process of a job that is about to take memory.
struct HostClaim {
  std::string host;
  int64_t wanted_bytes = 0;
  int64_t free_bytes = 0;  // of the host, before any process of the job has taken what it wants
};

// By process. Throws Error(kLimit) for a host whose processes, where they are several, want more together than it has.
void CheckHosts(std::span<const HostClaim> claims);

}  // namespace gradloom

#include "runtime/exec/check_machine.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/plan/memory_report.h"

namespace gradloom {
namespace {

constexpr size_t kMaxThreads = 512;
// Limit on the threads that compute for all streams. OpenMP ends the process if it cannot start one.
constexpr int64_t kMaxTeamThreads = 8192;

// The number of threads of the entry with the most.
size_t ThreadsOf(const Plan& plan, RankRange own) {
  size_t most = 0;
  for (const Entry& entry : plan.entries) {
    size_t threads = 0;
    for (int rank = own.first; rank < own.last; ++rank) {
      threads += plan.programs[static_cast<size_t>(entry.ranks[static_cast<size_t>(rank)].program)].streams.size();
    }
    most = std::max(most, threads);
  }
  return most;
}

// The number of threads that compute for the streams of the entry with the most.
int64_t TeamThreadsOf(const Plan& plan, RankRange own) {
  int64_t most = 0;
  for (const Entry& entry : plan.entries) {
    int64_t threads = 0;
    for (int rank = own.first; rank < own.last; ++rank) {
      const Program& program = plan.programs[static_cast<size_t>(entry.ranks[static_cast<size_t>(rank)].program)];
      for (const Stream& stream : program.streams) threads += stream.threads;
    }
    most = std::max(most, threads);
  }
  return most;
}

std::string MiB(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

int64_t HostBytesOf(const Plan& plan, RankRange own) {
  if (plan.targets.front().device != DeviceKind::kCpu) return 0;
  int64_t all = 0;
  std::set<int> counted;
  for (int rank = own.first; rank < own.last; ++rank) {
    const int place = plan.PlaceOf(static_cast<size_t>(rank));
    const PlaceMemory memory = ArenasOf(plan, place);
    // Devices with the same place share its constants.
    all += memory.total_bytes() - (counted.insert(place).second ? 0 : memory.constants_bytes);
  }
  return all;
}

void CheckHosts(std::span<const HostMemoryRequest> claims) {
  struct Host {
    int64_t processes = 0, wanted = 0, most = 0, free = std::numeric_limits<int64_t>::max();
  };
  std::map<std::string, Host> hosts;
  for (const HostMemoryRequest& claim : claims) {
    Host& host = hosts[claim.host];
    ++host.processes;
    host.wanted += claim.wanted_bytes;
    host.most = std::max(host.most, claim.wanted_bytes);
    host.free = std::min(host.free, claim.free_bytes);
  }
  for (const auto& [name, host] : hosts) {
    if (host.processes == 1 || host.wanted <= host.free) continue;
    const int64_t fit = host.free / std::max<int64_t>(host.most, 1);
    throw Error(ErrorCode::kLimit,
                "the " + std::to_string(host.processes) + " processes of the job on host " + Escaped(name) + " need " + MiB(host.wanted) +
                    ", each up to " + MiB(host.most) + ", but the host has " + MiB(host.free) + " free for all of them",
                "",
                fit > 0 ? "start at most " + std::to_string(fit) + " on this host, or use a smaller --batch"
                        : "use a smaller --batch, or a host with more memory");
  }
}

void CheckMachine(const Plan& plan, RankRange own, int64_t shared_bytes) {
  const auto devices = static_cast<size_t>(own.count());
  if (const size_t threads = ThreadsOf(plan, own); threads > kMaxThreads) {
    throw Error(
        ErrorCode::kLimit,
        std::to_string(devices) + " CPU devices need " + std::to_string(threads) + " threads; the limit is " + std::to_string(kMaxThreads),
        "",
        "--devices cpu:" + std::to_string(std::max<size_t>(1, kMaxThreads * devices / threads)) + "   (compile and simulate accept more)");
  }
  if (const int64_t threads = TeamThreadsOf(plan, own); threads > kMaxTeamThreads) {
    throw Error(ErrorCode::kLimit,
                "the plan computes with " + std::to_string(threads) + " threads at once; the limit is " + std::to_string(kMaxTeamThreads),
                "", "compile it with fewer --threads");
  }
  if (devices == 1) {
    return RequireHostMemory(HostBytesOf(plan, own) - shared_bytes, "a step of the plan",
                             "weights and optimizer " + MiB(ArenasOf(plan, plan.PlaceOf(static_cast<size_t>(own.first))).state_bytes),
                             "use a smaller --batch");
  }
  const int64_t free = FreeHostBytes();
  if (HostBytesOf(plan, own) <= free) return;
  int64_t most = 0, most_state = 0;
  for (int rank = own.first; rank < own.last; ++rank) {
    const PlaceMemory memory = ArenasOf(plan, plan.PlaceOf(static_cast<size_t>(rank)));
    const int64_t each = memory.total_bytes() - memory.constants_bytes;
    if (each > most) most = each, most_state = memory.state_bytes;
  }
  throw Error(
      ErrorCode::kLimit,
      std::to_string(devices) + " CPU devices need " + MiB(most) + " each, but this machine has " + MiB(free) + " free for all of them",
      "weights and optimizer " + MiB(most_state) + " per device",
      "--devices cpu:" + std::to_string(std::max<int64_t>(1, free / std::max<int64_t>(most, 1))));
}

}  // namespace gradloom

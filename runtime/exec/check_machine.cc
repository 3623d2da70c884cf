#include "runtime/exec/check_machine.h"

#include <algorithm>
#include <set>
#include <string>

#include "runtime/base/error.h"
#include "runtime/exec/memory.h"
#include "runtime/plan/memory_report.h"

namespace gradloom {
namespace {

constexpr size_t kMostThreads = 512;

// Of the entry that has most.
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

std::string MiB(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

void CheckMachine(const Plan& plan, RankRange own) {
  const auto devices = static_cast<size_t>(own.count());
  if (const size_t threads = ThreadsOf(plan, own); threads > kMostThreads) {
    throw Error(ErrorCode::kLimit,
                "CPU devices are threads, and " + std::to_string(devices) + " of them would be " + std::to_string(threads), "",
                "--devices cpu:" + std::to_string(std::max<size_t>(1, kMostThreads * devices / threads)) +
                    "   the plan alone can have more: gradloom compile, gradloom simulate");
  }
  if (devices == 1) return;
  int64_t all = 0, most = 0, most_state = 0;
  std::set<int> counted;
  for (int rank = own.first; rank < own.last; ++rank) {
    const int place = plan.PlaceOf(static_cast<size_t>(rank));
    const PlaceMemory memory = ArenasOf(plan, place);
    // Devices of a place share its constants.
    const int64_t each = memory.total_bytes() - memory.constants_bytes;
    all += each + (counted.insert(place).second ? memory.constants_bytes : 0);
    if (each > most) most = each, most_state = memory.state_bytes;
  }
  const int64_t free = FreeHostBytes();
  if (all <= free) return;
  throw Error(
      ErrorCode::kLimit,
      std::to_string(devices) + " CPU devices need " + MiB(most) + " each, and this machine has " + MiB(free) + " free for all of them",
      "weights and optimizer " + MiB(most_state) + " a device",
      "--devices cpu:" + std::to_string(std::max<int64_t>(1, free / std::max<int64_t>(most, 1))));
}

}  // namespace gradloom

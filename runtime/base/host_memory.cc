#include "runtime/base/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "runtime/base/control_group.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Smaller allocations are not looked at.
constexpr int64_t kUncheckedBytes = int64_t{16} << 20;

// Page tables and the buffers of the system need memory as well, about this part of what they serve.
constexpr int64_t kReservedPart = 64;

// The bytes that the machine has.
struct Machine {
  int64_t available = -1;  // without swapping; -1: not known
  int64_t swap = 0;        // free swap space
};

Machine ReadMachine() {
  Machine machine;
  std::ifstream in("/proc/meminfo");
  std::string key;
  // "MemAvailable:   1234 kB"
  for (int64_t kilobytes = 0; in >> key >> kilobytes; in.ignore(kNoLimit, '\n')) {
    if (key == "MemAvailable:") machine.available = kilobytes * 1024;
    if (key == "SwapFree:") machine.swap = kilobytes * 1024;
  }
  if (machine.available < 0) machine.available = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return machine;
}

// What a limit on a resource of this process leaves.
int64_t LeftOf(decltype(RLIMIT_AS) resource, int64_t used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > static_cast<rlim_t>(kNoLimit))
    return kNoLimit;
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - used, 0);
}

// What the limits of this process and of its control group leave.
int64_t LeftOfLimits() {
  // In pages: size, resident, shared, text, libraries, data and stack.
  int64_t pages[6] = {};
  std::ifstream in("/proc/self/statm");
  for (int64_t& number : pages) in >> number;
  const int64_t page = sysconf(_SC_PAGESIZE), of_group = LimitsOfThisGroup().free_bytes;
  return std::min({LeftOf(RLIMIT_AS, pages[0] * page), LeftOf(RLIMIT_DATA, pages[5] * page), of_group < 0 ? kNoLimit : of_group});
}

// Rounded up.
std::string MiB(int64_t bytes) { return std::to_string((bytes >> 20) + (bytes % (1 << 20) != 0 ? 1 : 0)) + " MiB"; }

}  // namespace

int64_t FreeHostBytes() { return std::min(ReadMachine().available, LeftOfLimits()); }

void RequireHostMemory(int64_t bytes, const std::string& what, const std::string& where, const std::string& help) {
  if (bytes < kUncheckedBytes) return;
  const Machine machine = ReadMachine();
  const int64_t free = std::min(machine.available + machine.swap, LeftOfLimits());
  if (bytes <= free - free / kReservedPart) return;
  throw Error(ErrorCode::kResource, what + " needs " + MiB(bytes) + " of memory, but " + MiB(free) + " are free", where,
              help + (help.empty() ? "use" : ", or use") + " a machine with more memory");
}

}  // namespace gradloom

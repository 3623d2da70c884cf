#include "runtime/base/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Smaller allocations are not looked at.
constexpr int64_t kUncheckedBytes = int64_t{16} << 20;

// Page tables and the buffers of the system need memory as well, about this part of what they serve.
constexpr int64_t kReservedPart = 64;

// What the cache of ZFS gives back, which MemAvailable counts as used.
int64_t ReclaimableOfZfs(const std::string& proc) {
  std::ifstream in(proc + "/spl/kstat/zfs/arcstats");
  int64_t size = 0, least = 0;
  // "c_min                           4    2097152000"
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key, type;
    int64_t number = 0;
    if (!(words >> key >> type >> number)) continue;
    if (key == "size") size = number;
    if (key == "c_min") least = number;
  }
  return std::max<int64_t>(size - least, 0);
}

// What a limit on a resource of this process leaves.
int64_t LeftOf(decltype(RLIMIT_AS) resource, int64_t used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > static_cast<rlim_t>(kNoLimit))
    return kNoLimit;
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - used, 0);
}

// What the limits of this process leave.
int64_t LeftOfProcess() {
  // In pages: size, resident, shared, text, libraries, data and stack.
  int64_t pages[6] = {};
  std::ifstream in("/proc/self/statm");
  for (int64_t& number : pages) in >> number;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return std::min(LeftOf(RLIMIT_AS, pages[0] * page), LeftOf(RLIMIT_DATA, pages[5] * page));
}

// What this process can fill, with swapping.
int64_t FillableBytes() { return std::min(BytesWithSwap(MemoryOfMachine(), LimitsOfThisGroup()), LeftOfProcess()); }

bool Fits(int64_t bytes, int64_t free) { return free == kNoLimit || bytes <= free - free / kReservedPart; }

// Rounded up.
std::string MiB(int64_t bytes) { return std::to_string((bytes >> 20) + (bytes % (1 << 20) != 0 ? 1 : 0)) + " MiB"; }

}  // namespace

MachineMemory MemoryOfMachine(const std::string& proc) {
  MachineMemory machine;
  std::ifstream in(proc + "/meminfo");
  std::string key;
  // "MemAvailable:   1234 kB"
  for (int64_t kilobytes = 0; in >> key >> kilobytes; in.ignore(kNoLimit, '\n')) {
    if (key == "MemAvailable:") machine.available = kilobytes * 1024;
    if (key == "SwapFree:") machine.swap = kilobytes * 1024;
  }
  if (machine.available >= 0) machine.available += ReclaimableOfZfs(proc);
  return machine;
}

int64_t BytesWithSwap(const MachineMemory& machine, const GroupLimits& group) {
  const int64_t swap = group.swap_bytes < 0 ? machine.swap : std::min(machine.swap, group.swap_bytes);
  const int64_t of_machine = machine.available < 0 ? kNoLimit : machine.available + swap;
  return std::min(of_machine, group.free_bytes < 0 ? kNoLimit : group.free_bytes + swap);
}

int64_t FreeHostBytes() {
  const int64_t known = MemoryOfMachine().available, of_group = LimitsOfThisGroup().free_bytes;
  // The second is without the file cache, and so may be far less than there is: nothing is refused because of it.
  const int64_t of_machine = known >= 0 ? known : sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return std::min({of_machine, of_group < 0 ? kNoLimit : of_group, LeftOfProcess()});
}

bool HasHostMemory(int64_t bytes) { return bytes < kUncheckedBytes || Fits(bytes, FillableBytes()); }

void RequireHostMemory(int64_t bytes, const std::string& what, const std::string& where, const std::string& help) {
  if (bytes < kUncheckedBytes) return;
  const int64_t free = FillableBytes();
  if (Fits(bytes, free)) return;
  throw Error(ErrorCode::kResource, what + " needs " + MiB(bytes) + " of memory, but " + MiB(free) + " are free", where,
              help + (help.empty() ? "use" : ", or use") + " a machine with more memory");
}

}  // namespace gradloom

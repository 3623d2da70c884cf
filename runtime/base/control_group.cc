#include "runtime/base/control_group.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

// cgroup v1 writes "no limit" as the largest number of whole pages.
constexpr int64_t kUnlimited = int64_t{1} << 60;

int64_t NumberIn(const std::string& file) {
  std::ifstream in(file);
  int64_t number = -1;
  return in >> number ? number : -1;
}

// The bytes of a group that the system takes back when it needs memory: its file cache, whether used lately or not, and what it remembers
// of files. They are free just as MemAvailable counts them for the machine. `prefix`: of the words in memory.stat.
int64_t Reclaimable(const std::string& folder, const std::string& prefix) {
  std::ifstream in(folder + "/memory.stat");
  std::string key;
  int64_t bytes = 0;
  for (int64_t number = 0; in >> key >> number;) {
    if (key == prefix + "inactive_file" || key == prefix + "active_file" || key == "slab_reclaimable") bytes += number;
  }
  return bytes;
}

void LimitCores(double quota, double period, GroupLimits& limits) {
  if (quota <= 0 || period <= 0) return;
  limits.cores = limits.cores > 0 ? std::min(limits.cores, quota / period) : quota / period;
}

void LimitMemory(int64_t limit, int64_t used, int64_t cached, GroupLimits& limits) {
  if (limit < 0 || limit >= kUnlimited) return;
  const int64_t free = std::max<int64_t>(limit - std::max<int64_t>(used - cached, 0), 0);
  limits.memory_bytes = limits.memory_bytes < 0 ? limit : std::min(limits.memory_bytes, limit);
  limits.free_bytes = limits.free_bytes < 0 ? free : std::min(limits.free_bytes, free);
}

void LimitSwap(int64_t limit, int64_t used, GroupLimits& limits) {
  if (limit < 0 || limit >= kUnlimited) return;
  const int64_t free = std::max<int64_t>(limit - std::max<int64_t>(used, 0), 0);
  limits.swap_bytes = limits.swap_bytes < 0 ? free : std::min(limits.swap_bytes, free);
}

// cgroup v2: one tree.
void ReadUnified(const std::string& folder, GroupLimits& limits) {
  std::ifstream in(folder + "/cpu.max");
  double quota = 0, period = 0;
  // "max" does not parse as a number.
  if (in >> quota >> period) LimitCores(quota, period, limits);
  LimitMemory(NumberIn(folder + "/memory.max"), NumberIn(folder + "/memory.current"), Reclaimable(folder, ""), limits);
  LimitSwap(NumberIn(folder + "/memory.swap.max"), NumberIn(folder + "/memory.swap.current"), limits);
}

// cgroup v1: one tree per controller.
void ReadCpu(const std::string& folder, GroupLimits& limits) {
  LimitCores(static_cast<double>(NumberIn(folder + "/cpu.cfs_quota_us")), static_cast<double>(NumberIn(folder + "/cpu.cfs_period_us")),
             limits);
}
void ReadMemory(const std::string& folder, GroupLimits& limits) {
  const int64_t limit = NumberIn(folder + "/memory.limit_in_bytes"), used = NumberIn(folder + "/memory.usage_in_bytes");
  LimitMemory(limit, used, Reclaimable(folder, "total_"), limits);
  // Memory and swap together, of at least the limit on memory.
  const int64_t both = NumberIn(folder + "/memory.memsw.limit_in_bytes"), both_used = NumberIn(folder + "/memory.memsw.usage_in_bytes");
  if (limit >= 0 && used >= 0 && both >= limit && both < kUnlimited) LimitSwap(both - limit, both_used - used, limits);
}

// Calls `read` for the group and all its ancestors. In a container the names may be those of the host while the mounted tree is the
// container's own; then only the outermost folder exists.
void ForEachAround(const std::string& tree, std::string group, void (*read)(const std::string& folder, GroupLimits& limits),
                   GroupLimits& limits) {
  while (!group.empty() && group != "/") {
    read(tree + group, limits);
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  read(tree, limits);
}

}  // namespace

GroupLimits LimitsOfThisGroup(const std::string& root, const std::string& groups) {
  GroupLimits limits;
  std::ifstream in(groups);
  // "0::/a/b", or "4:cpu,cpuacct:/a/b".
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) ForEachAround(root, group, ReadUnified, limits);
    if (controllers == "memory") ForEachAround(root + "/memory", group, ReadMemory, limits);
    // Also for controllers mounted together: both names lead to the shared folder.
    if (("," + controllers + ",").find(",cpu,") != std::string::npos) ForEachAround(root + "/cpu", group, ReadCpu, limits);
  }
  return limits;
}

namespace {

// The cores on which threads that the calling one starts may run.
int CoresOfThisThread() {
  // OpenMP was told to place its threads (OMP_PROC_BIND, OMP_PLACES), and has moved the main thread to one core when it was loaded.
  if (const int places = omp_get_num_places(); places > 0) {
    std::set<int> cores;
    for (int place = 0; place < places; ++place) {
      std::vector<int> of_place(static_cast<size_t>(omp_get_place_num_procs(place)));
      omp_get_place_proc_ids(place, of_place.data());
      cores.insert(of_place.begin(), of_place.end());
    }
    return static_cast<int>(cores.size());
  }
  // The system refuses a set that is smaller than its own, whose size it does not tell.
  constexpr size_t kMostSets = 256;
  for (size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> allowed(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, allowed.data()) == 0) return CPU_COUNT_S(bytes, allowed.data());
    if (errno != EINVAL) break;
  }
  // Those of the machine, whatever this process may use.
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int AllowedCores() { return AllowedCores(LimitsOfThisGroup().cores); }

int AllowedCores(double share) {
  const int cores = std::max(1, CoresOfThisThread());
  return share > 0 ? std::clamp(static_cast<int>(std::ceil(share)), 1, cores) : cores;
}

}  // namespace gradloom

// The resource limits of a group of processes, in containers and batch systems: Linux control groups, versions 1 and 2.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

struct GroupLimits {
  double cores = 0;           // of CPU time; 0: no limit
  int64_t memory_bytes = -1;  // -1: no limit
  int64_t free_bytes = -1;    // of the limit, counting the file cache as free; -1: no limit
  int64_t swap_bytes = -1;    // of swap space that the limits leave; -1: no limit
};

// The limits of this process's group and of the groups that contain it. A limit that cannot be read counts as no limit. `root` and
// `groups`: where the system describes them.
GroupLimits LimitsOfThisGroup(const std::string& root = "/sys/fs/cgroup", const std::string& groups = "/proc/self/cgroup");

// The number of cores that this process may keep busy, at least one: those that it may run on, but no more than its group's share of CPU
// time.
int AllowedCores();
// The same for a known share (GroupLimits::cores).
int AllowedCores(double share);

}  // namespace gradloom

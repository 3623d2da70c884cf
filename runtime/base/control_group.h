// What the system lets a group of processes have, in containers and batch systems: Linux's control groups, in both of their forms.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

struct GroupLimits {
  double cores = 0;           // of processor time; 0: no limit
  int64_t memory_bytes = -1;  // -1: no limit
  int64_t free_bytes = -1;    // of that, what files are cached in counted as free; -1 where there is no limit
};

// Of the group that this process is in, and of those around it. What cannot be read is no limit. `root` and `groups`: where the system
// tells of them.
GroupLimits LimitsOfThisGroup(const std::string& root = "/sys/fs/cgroup", const std::string& groups = "/proc/self/cgroup");

// The cores that this process may keep busy, at least one: those it may run on, as many as its group's share of time is worth.
int AllowedCores();

}  // namespace gradloom

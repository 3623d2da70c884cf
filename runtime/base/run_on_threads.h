// Work that is divided over the cores, before the first step and between steps.
#pragma once

#include <cstdint>
#include <functional>

namespace gradloom {

// The number of threads that the calling thread's cores can run at once (AllowedCores), at least 1, and at most as many as the CoreLimits
// that live on it permit. Follows changes: of the cores at once, of the process group's share of their time within a second.
int NumCores();

// While it lives, work on the thread that made it uses at most this many cores. 0: no limit.
class CoreLimit {
 public:
  explicit CoreLimit(int cores);
  ~CoreLimit();
  CoreLimit(const CoreLimit&) = delete;
  CoreLimit& operator=(const CoreLimit&) = delete;

 private:
  const int before_;
};

// Calls f(i) once for every i in [0, n), on up to `threads` threads and in any order; waits for all. If the system has no threads left, the
// caller's does the rest. Throws what f threw for the smallest i, after calling it for all others.
void RunOnThreads(int64_t n, int threads, const std::function<void(int64_t)>& f);

}  // namespace gradloom

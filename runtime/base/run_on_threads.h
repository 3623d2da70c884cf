// Work that is divided over the cores, before the first step and between steps.
#pragma once

#include <cstdint>
#include <functional>

namespace gradloom {

// The number of threads that this process's cores can run at once, at least 1, determined at the first call.
int NumCores();

// Calls f(i) once for every i in [0, n), on up to `threads` threads and in any order; waits for all. If the system has no threads left, the
// caller's does the rest. Throws what f threw for the smallest i, after calling it for all others.
void RunOnThreads(int64_t n, int threads, const std::function<void(int64_t)>& f);

}  // namespace gradloom

// Work before the first step, on as many threads as it is worth.
#pragma once

#include <cstdint>
#include <functional>

namespace gradloom {

// Threads that this process's cores can run at once, at least 1; as it is when first asked.
int NumCores();

// f(i) for every i in [0, n), each once, on up to `threads` threads and in any order; returns when all have ended. Where the system has no
// threads left, the caller's does the rest. Throws what f threw for the smallest i; it is called for all others all the same.
void Spread(int64_t n, int threads, const std::function<void(int64_t)>& f);

}  // namespace gradloom

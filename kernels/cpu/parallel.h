// How kernels divide work among threads: OpenMP teams of the size that the plan gives the stream.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

namespace gradloom {

// ThreadSanitizer does not know the barriers of libgomp and would report a data race for every team. With it, each stream therefore has
// only one thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kTeams = false;
#else
inline constexpr bool kTeams = true;
#endif

// The index of the calling thread in its team. It determines the thread's part of the scratch memory.
inline int ThreadIndex() { return kTeams ? omp_get_thread_num() : 0; }

// The number of threads, at most `threads`, for `work` units, if each thread should have at least `grain` units.
inline int ThreadsFor(int64_t work, int64_t grain, int threads) {
  return static_cast<int>(std::clamp<int64_t>(work / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
}

// The number of threads with which to begin a region in which `threads` have work: all threads of the stream. libgomp ends the threads that
// a smaller team leaves over, and the next larger one creates them again, which takes longer than many kernels; passing a barrier without
// work does not.
inline int TeamOf(int threads) { return std::max(threads, omp_get_max_threads()); }

// Calls f(begin, end) on disjoint ranges that cover [0, n), one range per thread. All begins are multiples of `unit`. f must not throw.
template <typename F>
void ParallelRanges(int64_t n, int64_t unit, int threads, F&& f) {
  if (!kTeams || threads <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(TeamOf(threads))
  {
    const int64_t team = std::min(omp_get_num_threads(), threads), units = (n + unit - 1) / unit, me = omp_get_thread_num();
    const int64_t begin = units * me / team * unit, end = std::min(n, units * (me + 1) / team * unit);
    if (me < team && begin < end) f(begin, end);
  }
}

// Calls f(task, thread) for every task in [0, n), with thread < threads. The tasks of a thread run one after the other. If f throws, one of
// the exceptions is passed on to the caller.
template <typename F>
void ParallelTasks(int64_t n, int threads, F&& f) {
  std::exception_ptr failure;
  std::mutex failed;
  ParallelRanges(threads, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      try {
        for (int64_t task = n * thread / threads; task < n * (thread + 1) / threads; ++task) f(task, static_cast<int>(thread));
      } catch (...) {
        const std::lock_guard lock(failed);
        failure = std::current_exception();
      }
    }
  });
  if (failure) std::rethrow_exception(failure);
}

// Calls f(index) for every index in [0, n), in fixed contiguous ranges per thread. f must not throw.
template <typename F>
void ParallelFor(int64_t n, int threads, F&& f) {
  ParallelRanges(n, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace gradloom

// The one way in which kernels share their work: OpenMP teams of the size that the plan gave the stream.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

namespace gradloom {

// ThreadSanitizer does not see the barriers of libgomp and would take every team for a race: it watches streams, each of
// which then has one thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kTeams = false;
#else
inline constexpr bool kTeams = true;
#endif

// Which of its team the calling thread is: what part of the scratch memory is its own.
inline int ThreadPlace() { return kTeams ? omp_get_thread_num() : 0; }

// How many parts of `b` make `a`, the last of them smaller.
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How many of `threads` are worth waking for `work` units of which one thread should have `grain` at least.
inline int ThreadsFor(int64_t work, int64_t grain, int threads) {
  return static_cast<int>(std::clamp<int64_t>(work / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
}

// f(begin, end) on disjoint ranges that cover [0, n), a thread each; all begins are multiples of `unit`.
// f must not throw.
template <typename F>
void ParallelRanges(int64_t n, int64_t unit, int threads, F&& f) {
  if (!kTeams || threads <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t team = omp_get_num_threads(), units = (n + unit - 1) / unit, me = omp_get_thread_num();
    const int64_t begin = units * me / team * unit, end = std::min(n, units * (me + 1) / team * unit);
    if (begin < end) f(begin, end);
  }
}

// f(task, thread) for every task in [0, n), those of a thread one after the other, thread < threads. What f throws last goes on to the
// caller.
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

// f(index) for every index in [0, n), in fixed contiguous shares. f must not throw.
template <typename F>
void ParallelFor(int64_t n, int threads, F&& f) {
  ParallelRanges(n, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace gradloom

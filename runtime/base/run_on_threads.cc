#include "runtime/base/run_on_threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/control_group.h"

namespace gradloom {

namespace {

thread_local int core_limit = 0;  // of the CoreLimits of this thread; 0: none

// The group's share of CPU time. It is in files, and callers may ask in each step. Without a lock, which a forked child could find locked:
// two threads may read the files at once.
double ShareOfGroup() {
  using Clock = std::chrono::steady_clock;
  static std::atomic<Clock::time_point> read{Clock::time_point::min()};
  static std::atomic<double> share{0};
  const auto now = Clock::now(), before = read.load();
  if (before == Clock::time_point::min() || now - before >= std::chrono::seconds(1)) {
    share = LimitsOfThisGroup().cores;
    read = now;
  }
  return share;
}

}  // namespace

int NumCores() {
  const int cores = AllowedCores(ShareOfGroup());
  return core_limit > 0 ? std::min(core_limit, cores) : cores;
}

CoreLimit::CoreLimit(int cores) : before_(core_limit) {
  if (cores > 0) core_limit = core_limit > 0 ? std::min(core_limit, cores) : cores;
}

CoreLimit::~CoreLimit() { core_limit = before_; }

void RunOnThreads(int64_t n, int threads, const std::function<void(int64_t)>& f) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  int64_t failed = n;
  std::exception_ptr error;
  const auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) failed = i, error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto count = static_cast<int>(std::min<int64_t>(threads, n));
    try {
      while (static_cast<int>(others.size()) + 1 < count) others.emplace_back(work);
    } catch (const std::system_error&) {
      // The thread could not be started; the calling thread does its share.
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gradloom

#include "runtime/base/run_on_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/control_group.h"

namespace gradloom {

int NumCores() {
  static const int cores = AllowedCores();  // reads files
  return cores;
}

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

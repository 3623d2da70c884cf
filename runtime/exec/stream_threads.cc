#include "runtime/exec/stream_threads.h"

#include <string>
#include <system_error>

#include "runtime/base/error.h"

namespace gradloom {

StreamThreads::~StreamThreads() {
  stops_ = true;
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StreamThreads::Run(int count, const std::function<void(int)>& f) {
  try {
    while (static_cast<int>(threads_.size()) < count - 1) {
      const int index = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back([this, index, seen = run_.load(std::memory_order_relaxed)] { Work(index, seen); });
    }
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResource, "cannot start a thread for stream " + std::to_string(threads_.size() + 1) + ": " + error.what(), "",
                "use fewer --devices or --streams");
  }
  work_ = &f;
  count_ = count;
  working_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  f(0);
  // Also waits for threads without work: none may still read `f` when the next run begins.
  for (uint32_t left; (left = working_.load(std::memory_order_acquire)) != 0;) working_.wait(left, std::memory_order_acquire);
}

void StreamThreads::Work(int index, uint32_t seen) {
  for (;; ++seen) {
    while (run_.load(std::memory_order_acquire) == seen) run_.wait(seen, std::memory_order_acquire);
    if (stops_) return;
    if (index < count_) (*work_)(index);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace gradloom

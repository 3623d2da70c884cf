#include "runtime/base/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace gradloom {
namespace {

std::atomic<int> forks{0};
thread_local bool left_by_fork = false;

// At load time: whoever asks then only reads a number, where asking for the process would be a system call.
[[maybe_unused]] const int kCounted = pthread_atfork(nullptr, nullptr, [] {
  forks.fetch_add(1, std::memory_order_relaxed);
  left_by_fork = true;
});

}  // namespace

int ForkCount() { return forks.load(std::memory_order_relaxed); }

bool IsLeftByFork() { return left_by_fork; }

}  // namespace gradloom

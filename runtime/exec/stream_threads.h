// The threads of the streams of a step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace gradloom {

class StreamThreads {
 public:
  StreamThreads() = default;
  ~StreamThreads();
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  // f(0) to f(count - 1) at the same time, each on a thread of its own, f(0) on the caller's; returns when all have.
  // Threads are started as they are needed and kept. f must not throw. Throws Error(kResource).
  void Run(int count, const std::function<void(int)>& f);

 private:
  void Work(int index, uint32_t seen);

  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  int count_ = 0;
  bool stops_ = false;
  std::atomic<uint32_t> run_{0};      // number of the run that has begun
  std::atomic<uint32_t> working_{0};  // threads that have not come to the end of it
};

}  // namespace gradloom

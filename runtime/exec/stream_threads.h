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

  // Runs f(0) to f(count - 1) concurrently, each on its own thread, f(0) on the caller's, and waits for all. Threads are started as needed
  // and kept. f must not throw. Throws Error(kResource).
  void Run(int count, const std::function<void(int)>& f);

 private:
  void Work(int index, uint32_t seen);

  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  int count_ = 0;
  bool stops_ = false;
  std::atomic<uint32_t> run_{0};      // number of the current run
  std::atomic<uint32_t> working_{0};  // threads that have not finished it
};

}  // namespace gradloom

// A thread that runs one piece of work at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gradloom {

class Background {
 public:
  Background() = default;
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Starts the work, after the previous one has ended. The thread is started at the first call. `work` must not throw. Throws
  // Error(kResource).
  void Start(std::function<void()> work);
  // The same if the work is worth a thread and one is available; otherwise runs it on the caller's thread, after the previous one has
  // ended.
  void StartOrRun(bool worthwhile, const std::function<void()>& work);
  // Waits until the work has ended.
  void Wait();

 private:
  void Loop();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: no work
  bool stops_ = false;
};

}  // namespace gradloom

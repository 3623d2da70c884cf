// One piece of work at a time on a thread of its own.
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

  // Begins the work, once what was begun before has ended. The thread is started at the first call. `work` must not throw. Throws
  // Error(kResource).
  void Start(std::function<void()> work);
  // The same where the work is worth a thread and there is one; else on the caller's, once what was begun before has ended.
  void StartOrDo(bool worthwhile, const std::function<void()>& work);
  // Returns when what was begun has ended.
  void Wait();

 private:
  void Loop();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: there is none
  bool stops_ = false;
};

}  // namespace gradloom

#include "runtime/base/background.h"

#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {

Background::~Background() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !work_; });
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Background::Start(std::function<void()> work) {
  Wait();
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::kResource, std::string("cannot start a background thread: ") + error.what(), "",
                  "use fewer --devices or --streams");
    }
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void Background::StartOrRun(bool worthwhile, const std::function<void()>& work) {
  if (worthwhile) {
    try {
      return Start(work);
    } catch (const Error&) {
      // No thread could be started.
    }
  }
  Wait();
  work();
}

void Background::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !work_; });
}

void Background::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || work_; });
    if (stops_) return;
    lock.unlock();
    work_();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gradloom

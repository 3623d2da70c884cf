#include "runtime/exec/step_at_exit.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// A step that waits for another process may never end.
constexpr auto kLimit = std::chrono::seconds(5);
// The end of a program rarely takes that long, unless it waits for a thread whose step was refused.
constexpr auto kEndLimit = std::chrono::seconds(10);

std::atomic<int> running{0};
std::atomic<bool> ends{false};
std::atomic<std::chrono::steady_clock::time_point> ends_since{};
thread_local int here = 0;
thread_local bool ends_program = false;  // whether this thread has called exit

void WaitForOthers() {
  ends_since = std::chrono::steady_clock::now();
  ends = true;
  ends_program = true;
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (running > here && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Handlers run before the destructors of libraries, in the reverse order of their registration: this one, before the first step, after
// those of the program.
void Register() {
  static const bool registered = [] {
    std::atexit(WaitForOthers);
    // The steps of other threads do not run in a child.
    pthread_atfork(nullptr, nullptr, [] { running = here; });
    return true;
  }();
  static_cast<void>(registered);
}

// The program's last handlers and the destructors of its global objects run after those of what a step uses.
[[noreturn]] void Refuse() {
  throw Error(ErrorCode::kConfig, "the program has called exit, after which no step can begin", "",
              "finish with the session before main returns");
}

}  // namespace

StepAtExit::StepAtExit() {
  Register();
  ++running;
  ++here;
  // Not within a step of a thread that has called exit itself.
  if (!ends || here > 1) return;
  --here;
  --running;
  Refuse();
}

StepAtExit::~StepAtExit() {
  --here;
  --running;
}

void StepAtExit::CheckMayBegin() {
  if (ends && here == 0) Refuse();
}

void StepAtExit::WaitForEnd() noexcept {
  if (!ends || ends_program) return;
  // Since exit: a thread for which the end waits may make many calls.
  const auto limit = ends_since.load() + kEndLimit;
  while (std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace gradloom

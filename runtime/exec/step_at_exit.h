// Steps on threads that a program leaves behind when it ends.
#pragma once

namespace gradloom {

// Exists while a step runs, on the thread that has called for it. If the program calls exit meanwhile on another thread, as Python does
// with daemon threads, the process ends when the step has, or after some seconds: libraries destroy what the step uses. A step that begins
// later is refused.
class StepAtExit {
 public:
  // Throws Error(kConfig) if the program has called exit, except within another step of this thread.
  StepAtExit();
  ~StepAtExit();

  // Throws the same. For a step that another thread will run.
  static void CheckMayBegin();

  // For a call that has failed, once it holds nothing for which the end of the program may wait. If the program has called exit, waits some
  // seconds for the process to end: most programs do not expect an error then. Not on the thread that has called exit; and not for ever,
  // because that one may wait for this thread.
  static void WaitForEnd() noexcept;

  StepAtExit(const StepAtExit&) = delete;
  StepAtExit& operator=(const StepAtExit&) = delete;
};

}  // namespace gradloom

// Steps on threads that a program leaves behind when it ends.
#pragma once

namespace gradloom {

// Exists while a step runs. If the program calls exit meanwhile on another thread, as Python does with daemon threads, the process ends
// when the step has, or after some seconds: libraries destroy what the step uses. A step that begins later never runs.
class StepAtExit {
 public:
  StepAtExit();
  ~StepAtExit();
  StepAtExit(const StepAtExit&) = delete;
  StepAtExit& operator=(const StepAtExit&) = delete;
};

}  // namespace gradloom

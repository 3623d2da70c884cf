// Requests to stop from outside: a key at the terminal, a batch system that takes the machine back.
#pragma once

namespace gradloom {

// While an object lives, the first SIGINT, SIGTERM, SIGUSR1 or, unless it is ignored, SIGHUP is kept for whoever asks, so that a run can
// finish its step and save; a second SIGINT ends the process at once. At most one object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came first, or 0.
  static int received();

  // 130 for SIGINT, 138 for the others.
  static int ExitCodeOf(int signal);

  // "SIGINT", ...
  static const char* NameOf(int signal);
};

}  // namespace gradloom

// External requests to stop: a key at the terminal, or a batch system that reclaims the machine.
#pragma once

namespace gradloom {

// While an object lives, the first SIGINT, SIGTERM, SIGUSR1 or, unless ignored, SIGHUP is recorded, so that a run can finish its step and
// save; a second SIGINT ends the process at once. At most one object may exist at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal, or 0.
  static int received();

  // 130 for SIGINT, 138 for the others.
  static int ExitCodeOf(int signal);

  // "SIGINT", ...
  static const char* NameOf(int signal);
};

}  // namespace gradloom

#include "tools/run/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>

namespace gradloom {
namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT, as in shells
constexpr int kPreempted = 138;    // 128 + SIGUSR1, which batch systems send; also used if the terminal is closed

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

volatile sig_atomic_t first_signal = 0, interrupts = 0;
std::array<struct sigaction, kSignals.size()> before;

void OnSignal(int signal) {
  if (signal == SIGINT) interrupts = interrupts + 1;
  if (interrupts > 1) {
    // The cursor may be inside a progress bar.
    if (isatty(STDERR_FILENO) != 0) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, "\n", 1);
    }
    _exit(kInterrupted);
  }
  if (first_signal == 0) first_signal = signal;
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before[i]);
    // nohup's setting is kept.
    if (kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &before[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int StopSignals::received() { return first_signal; }

int StopSignals::ExitCodeOf(int signal) { return signal == SIGINT ? kInterrupted : kPreempted; }

const char* StopSignals::NameOf(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : signal == SIGUSR1 ? "SIGUSR1" : "SIGHUP";
}

}  // namespace gradloom

#include "tools/launch/job_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace gradloom {

JobSignals::JobSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    // nohup's setting is kept.
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (signal != SIGHUP || now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, &before_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ >= 0) return;
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  throw Error(ErrorCode::kResource, std::string("cannot create a descriptor for signals: ") + std::strerror(errno), "",
              "check the limit with ulimit -n");
}

JobSignals::~JobSignals() {
  // Signals that arrived unread have been answered: the job is over.
  Take();
  close(descriptor_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> JobSignals::Take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

}  // namespace gradloom

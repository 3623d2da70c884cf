#include "tools/launch/job_attempt.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "runtime/base/error.h"
#include "tools/run/stop_signals.h"

namespace gradloom {
namespace {

std::set<pid_t> Children() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  std::set<pid_t> children;
  for (pid_t child; file >> child;) children.insert(child);
  return children;
}

// Kills and reaps processes that the ranks have left behind: orphans are reparented to the launcher. `preexisting`: children that existed
// before. A process that the system does not release is left to it.
void SweepOrphans(const std::set<pid_t>& preexisting) {
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    bool left = false;
    for (const pid_t child : Children()) {
      if (preexisting.contains(child)) continue;
      kill(child, SIGKILL);
      left = waitpid(child, nullptr, WNOHANG) == 0 || left;
    }
    if (!left) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool IsStop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGUSR1; }

}  // namespace

const RankEnd* CauseOf(const std::vector<RankEnd>& ends) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (end.exit_code == 0) continue;
    if (first == nullptr) first = &end;
    if (first->exit_code != ExitCode(ErrorCode::kPeer)) return first;
    // A process that only misses a peer may be seen to end before that peer.
    if (!end.asked && end.exit_code != ExitCode(ErrorCode::kPeer)) return &end;
  }
  return first;
}

std::string JobAttempt::RankFile(const std::string& folder, int local_rank, const std::string& name) {
  return folder + "/" + std::to_string(local_rank) + "/" + name;
}

JobAttempt::JobAttempt(const LaunchOptions& options, bool this_program, int restarts, int master_port, const std::string& folder,
                       JobSignals& signals)
    : options_(options), folder_(folder), signals_(signals), preexisting_(Children()) {
  // Becomes the subreaper, so that no descendant of a rank can stay behind.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  try {
    Start(this_program, restarts, master_port);
  } catch (...) {
    KillAll();
    throw;
  }
}

JobAttempt::~JobAttempt() { KillAll(); }

void JobAttempt::Start(bool this_program, int restarts, int master_port) {
  const EnvironmentVariables variables = ThisProcessesVariables();
  for (int local = 0; local < options_.per_node; ++local) {
    const std::string own = folder_ + "/" + std::to_string(local);
    std::error_code error;
    std::filesystem::create_directories(own, error);
    if (error)
      throw Error(ErrorCode::kResource, "cannot create the folder: " + error.message(), Escaped(own, 4096),
                  "choose another with --log-dir");
    RankCommand command;
    command.words = options_.command;
    command.this_program = this_program;
    command.environment = VariablesOfRank(options_, local, restarts, master_port, RankFile(folder_, local, "error.json"), variables);
    command.streams = options_.streams[static_cast<size_t>(local)];
    command.files = {RankFile(folder_, local, "stdout.log"), RankFile(folder_, local, "stderr.log")};
    command.prefix = "[rank" + std::to_string(options_.RankOf(local)) + "]: ";
    ranks_.push_back({StartRank(command), local});
  }
}

bool JobAttempt::AnyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Running& rank) { return !rank.ended; });
}

// Each process leads a process group with everything that it has started.
void JobAttempt::Signal(int signal) {
  for (const Running& rank : ranks_) {
    if (!rank.ended) kill(-rank.process.pid, signal);
  }
}

void JobAttempt::KillAll() {
  if (ranks_.empty()) return;
  Signal(SIGKILL);
  for (Running& rank : ranks_) {
    while (!rank.ended && waitpid(rank.process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    rank.ended = true;
  }
  SweepOrphans(preexisting_);
  ranks_.clear();
}

void JobAttempt::TerminateAll() {
  forced_ = true;
  deadline_.reset();
  Signal(SIGKILL);
}

void JobAttempt::OnSignal(int signal) {
  if (signal == SIGCHLD) return Reap();
  if (signal == SIGTSTP) {
    Signal(SIGTSTP);
    kill(getpid(), SIGSTOP);
    return;
  }
  // A third interrupt kills the processes at once.
  constexpr int kPatience = 3;
  if (signal == SIGINT && ++interrupts_ >= kPatience) return TerminateAll();
  if (IsStop(signal) && end_.stop_signal == 0) end_.stop_signal = signal;
  asked_ = asked_ || IsStop(signal);
  Signal(signal);
  // A stopped process receives it only when it continues.
  if (IsStop(signal)) Signal(SIGCONT);
}

void JobAttempt::Reap() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const Running& running) { return !running.ended && running.process.pid == info.si_pid; });
    // Its id belongs to no other group as long as it has not been reaped.
    if (rank != ranks_.end()) kill(-info.si_pid, SIGKILL);
    int status = 0;
    waitpid(info.si_pid, &status, 0);
    if (rank != ranks_.end()) OnEnd(*rank, status);
  }
}

void JobAttempt::OnEnd(Running& rank, int status) {
  rank.ended = true;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int exit_code = signal > 0 ? 128 + signal : WEXITSTATUS(status);
  // A process that fails during the shutdown was not ended by the signal.
  const bool by_signal = signal != 0 && (signal == SIGTERM || signal == end_.stop_signal);
  const bool as_asked = by_signal || exit_code == 128 + SIGTERM || exit_code == StopSignals::ExitCodeOf(SIGTERM) ||
                        exit_code == StopSignals::ExitCodeOf(SIGINT);
  end_.ends.push_back({.rank = options_.RankOf(rank.local_rank),
                       .local_rank = rank.local_rank,
                       .pid = rank.process.pid,
                       .signal = signal,
                       .exit_code = exit_code,
                       .asked = forced_ || (asked_ && as_asked)});
  for (const auto& tee : rank.process.tees) tee->Drain();
  rank.process.tees.clear();
  if (exit_code == 0 || end_.ends.back().asked || deadline_) return;
  // The others would wait for it, possibly forever, also if all were asked to stop before.
  if (!asked_) {
    asked_ = true;
    Signal(SIGTERM);
    // Also wakes stopped processes, which receive no other signal.
    Signal(SIGCONT);
  }
  deadline_ = Clock::now() + std::chrono::seconds(options_.shutdown_seconds);
}

void JobAttempt::Wait() {
  std::vector<pollfd> waiting{{signals_.descriptor(), POLLIN, 0}};
  std::vector<LineTee*> tees;
  for (const Running& rank : ranks_) {
    for (const auto& tee : rank.process.tees) {
      waiting.push_back({tee->read_end(), POLLIN, 0});
      tees.push_back(tee.get());
    }
  }
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now()).count() + 1;
    timeout = static_cast<int>(std::max<int64_t>(left, 0));
  }
  if (poll(waiting.data(), waiting.size(), timeout) <= 0) return;
  std::vector<LineTee*> over;
  for (size_t i = 0; i < tees.size(); ++i) {
    if (waiting[i + 1].revents != 0 && !tees[i]->Pump()) over.push_back(tees[i]);
  }
  for (Running& rank : ranks_) {
    std::erase_if(rank.process.tees, [&](const auto& tee) { return std::find(over.begin(), over.end(), tee.get()) != over.end(); });
  }
}

AttemptEnd JobAttempt::Run() {
  while (AnyRunning()) {
    Wait();
    for (const int signal : signals_.Take()) OnSignal(signal);
    if (!deadline_ || Clock::now() < *deadline_) continue;
    TerminateAll();
  }
  SweepOrphans(preexisting_);
  ranks_.clear();
  return end_;
}

}  // namespace gradloom

// One attempt to run the processes of a job on this host, from the start of the first to the end of the last.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/launch/job_signals.h"
#include "tools/launch/launch_options.h"
#include "tools/launch/rank_process.h"

namespace gradloom {

// How one process ended.
struct RankEnd {
  int rank = 0, local_rank = 0;
  pid_t pid = -1;
  int signal = 0;      // the signal that killed it; 0: it exited
  int exit_code = 0;   // as in shells: 128 + signal
  bool asked = false;  // it was asked to end, or killed by the launcher
};

struct AttemptEnd {
  std::vector<RankEnd> ends;  // in the order in which they ended
  int stop_signal = 0;        // the first signal that the launcher received; 0: none
};

// The process that caused the failure: the first one that failed, unless it only reports that another one is gone. Null if none failed.
const RankEnd* CauseOf(const std::vector<RankEnd>& ends);

class JobAttempt {
 public:
  // Creates the folders of the ranks in `folder`. Throws as StartRank, after stopping the processes that were already started.
  JobAttempt(const LaunchOptions& options, bool this_program, int restarts, int master_port, const std::string& folder,
             JobSignals& signals);
  // Kills the processes that still run.
  ~JobAttempt();

  // Passes signals on to all processes. If one fails, asks the others to end, and kills them after a timeout.
  AttemptEnd Run();

  // The path of a rank's file: "stdout.log", "stderr.log" or "error.json".
  static std::string RankFile(const std::string& folder, int local_rank, const std::string& name);

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    RankProcess process;
    int local_rank = 0;
    bool ended = false;
  };

  void Start(bool this_program, int restarts, int master_port);
  void Signal(int signal);
  void OnSignal(int signal);
  void Reap();
  void OnEnd(Running& rank, int status);
  void Wait();
  void TerminateAll();
  void KillAll();
  bool AnyRunning() const;

  const LaunchOptions& options_;
  const std::string folder_;
  JobSignals& signals_;
  std::vector<Running> ranks_;
  AttemptEnd end_;
  const std::set<pid_t> preexisting_;  // children of this process that do not belong to the job
  bool asked_ = false, forced_ = false;
  int interrupts_ = 0;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace gradloom

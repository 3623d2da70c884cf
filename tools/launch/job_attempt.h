// The processes of a job on this host, from the start of all to the end of all.
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
  int signal = 0;      // that killed it; 0: it ended by itself
  int exit_code = 0;   // as shells have it: 128 + signal
  bool asked = false;  // as it was asked to, or made to
};

struct AttemptEnd {
  std::vector<RankEnd> ends;  // in their order
  int stop_signal = 0;        // the first one that the launcher got; 0: none
};

// The process that is the cause of a failure: the first that failed, unless it only says that another one is gone. Null: none failed.
const RankEnd* CauseOf(const std::vector<RankEnd>& ends);

class JobAttempt {
 public:
  // Folders of ranks are made in `folder`. Throws as StartRank, with those stopped that had been started.
  JobAttempt(const LaunchOptions& options, bool this_program, int restarts, int master_port, const std::string& folder,
             JobSignals& signals);
  // Kills what still runs.
  ~JobAttempt();

  // Signals are passed on to all processes; where one fails the others are asked to end, and then made to.
  AttemptEnd Run();

  // Where a rank of this host keeps what: "stdout.log", "stderr.log", "error.json".
  static std::string FileOf(const std::string& folder, int local_rank, const std::string& name);

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
  void MakeThemEnd();
  void KillAll();
  bool AnyRuns() const;

  const LaunchOptions& options_;
  const std::string folder_;
  JobSignals& signals_;
  std::vector<Running> ranks_;
  AttemptEnd end_;
  const std::set<pid_t> spared_;  // children of this process that are none of the job
  bool asked_ = false, forced_ = false;
  int interrupts_ = 0;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace gradloom

// Several processes that train one run, each with its own devices, all with the same plan; only rank 0 writes. Processes that use a trained
// model divide its batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/device_spec.h"
#include "runtime/session/session.h"
#include "runtime/session/shared_training.h"
#include "tools/config/configuration.h"
#include "tools/run/set_up.h"

namespace gradloom {

// The origin of a key whose value the processes determine together.
inline constexpr char kJobOrigin[] = "the job";

// The activity of a process, for the text of an error that ends it.
enum class JobPhase : uint8_t { kStart, kSteps, kEvaluation, kSave, kEnd, kPrediction };

// The operations that all processes of a job perform at the same points of a command. For a single process they do nothing.
class TrainingJob {
 public:
  // Connects according to the environment: this process's rank, and the address of rank 0. `known` is called before waiting for others,
  // which may take minutes. Throws as Communicator::Connect, and Error(kConfig) for a contradictory environment.
  static std::shared_ptr<TrainingJob> Join(const Configuration& configuration, const std::function<void(const JobTopology&)>& known);

  const JobTopology& topology() const { return topology_; }
  bool alone() const { return communicator_ == nullptr; }
  // Whether this process writes and prints.
  bool leads() const { return topology_.rank == 0; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  // For the screen: the transport to the other processes; "" for a single process.
  std::string TransportLine() const;

  // Broadcasts rank 0's text.
  std::string BroadcastText(const std::string& text) const;

  // Sets the number of devices of the job, and the threads of each. devices.use applies to one process; for a resumed run it applies to the
  // whole job unless a flag overrides it. For GPUs it becomes the list of all processes, by rank, with each number as that process counts.
  // Throws Error(kConfig, kDevice).
  void ShareDevices(Configuration& configuration, bool resumed) const;
  // Throw Error(kConfig) naming what differs between processes, with both values: before anything is derived from the configuration, and
  // before the first step.
  void CheckConfiguration(const Configuration& configuration, bool resumed) const;
  void CheckSetUp(const TrainingSetUp& set_up) const;
  // Call before any process allocates memory for its devices. Throws Error(kLimit) in all processes if those of one host together need more
  // memory than it has. A process runs its block of the plan's ranks, or all of them if each works by itself (`apart`), as with train.sync
  // hogwild.
  void CheckMemory(const Plan& plan, bool apart = false) const;

  // Throws Error(kConfig) if a line "name = value" of a process differs from rank 0's.
  void CheckSame(const std::string& lines, const std::string& help) const;
  // For processes that use a trained model. A model with a placement is used as it was trained if there are devices for all processes; they
  // are shared as above. Otherwise each process works by itself with its own devices: of several GPUs that all processes of a host see each
  // takes one, and the host's threads are divided.
  void DivideWork(Configuration& configuration);
  // After DivideWork: whether all processes run each batch together.
  bool shares_batches() const { return shares_batches_; }
  // From now on other processes are waited for no longer than train.collective_timeout.
  void EndSetUp() const;

  // If a process holds state that rank 0 does not send it: throws Error(kConfig) unless the file (or the folder of a checkpoint) is the
  // same for all.
  void CheckWeights(const Plan& plan, const std::string& path) const;

  // For a job whose processes write parts of checkpoints: throws Error(kConfig) if one of them does not see rank 0's folder.
  void CheckFolder(const std::string& folder) const;

  // Broadcasts rank 0's position, state and trainer state, and the step of the checkpoint that they come from, or -1. Ends the set-up
  // phase. `restored`: on rank 0, that checkpoint; null: start of the run.
  void ShareState(Session& session, std::string& trainer_state, int64_t saved_step, const Checkpoint* restored);

  // The shared state if the processes train one set of parameters without locks (train.sync); otherwise null. All processes call it, with
  // the same plan. Errors as SharedTraining::Make's.
  std::shared_ptr<SharedTraining> ShareParameters(const Plan& plan) const;

  // Call after each step, and between two batches of an evaluation. Returns the signal that stops the run now; 0: none. `received`: a
  // signal of this process. A signal of any process stops the run two calls later, in all processes at once. `saved_step`: of rank 0's last
  // checkpoint. `save_is_due`: whether rank 0's clock requires a save.
  int StopSignal(int received, int64_t saved_step, bool save_is_due = false);
  // Whether rank 0 has reported since the last call, before the last two StopSignals, that a save is due; the same in all processes.
  bool TakeSaveAgreed() { return std::exchange(save_agreed_, false); }

  // Marks work of rank 0 that the others wait for.
  void SetBusy(bool busy);
  // How long this process has waited for others since the last call, and how long ago that was, in seconds.
  struct WaitTime {
    double seconds = 0, of = 0;
  };
  WaitTime TakeWaitTime();
  // On rank 0, after TakeWaitTime, for that time: "rank 2 (host b, pid 4711): the others wait 31% of the time for it"; "" if there is no
  // straggler.
  std::string LateProcess() const { return late_; }

  // Returns the result of `run`; an exception in this process ends the job for all.
  template <typename Run>
  int Guard(Run&& run) const {
    try {
      return run();
    } catch (const Error& error) {
      AbortFor(std::current_exception());
      throw Located(error);
    } catch (...) {
      AbortFor(std::current_exception());
      throw;
    }
  }
  // Sets the current activity; initially kStart.
  void set_phase(JobPhase phase) { phase_ = phase; }

  // Completes a kPeer error that occurred after `step` or in the next one, with the step, the phase, the last checkpoint, and how to
  // continue. `saved_step` as this process knows it, or -1: what rank 0 has reported may be two steps old.
  Error Explained(const Error& error, int64_t step, const std::string& run, int64_t saved_step) const;
  // Call after the last step, in all processes.
  void Leave() const;

 private:
  TrainingJob() = default;
  void ShareGpus(Configuration& configuration, const DeviceSpec& wanted, bool of_the_job) const;
  // The threads of each of the job's CPU devices: the number that a single process would use, on the host with the fewest.
  void ShareThreads(Configuration& configuration, int devices) const;
  [[noreturn]] void RefuseTooFew(const Configuration& configuration, int devices) const;
  // The names of all processes, for messages.
  std::vector<std::string> Names() const;
  // Throws an error that all processes find at the same point, so that none takes the end of another one for a failure.
  [[noreturn]] void Refuse(const Error& error) const;
  // "waited in all-reduce #3 (loss)", "was saving": what this process was doing when it noticed that another one is gone.
  std::string Activity(const Error& error) const;
  // Adds the activity to a kPeer error that does not have it yet.
  Error Located(const Error& error) const;
  // Tells the others why this process ends.
  void AbortFor(const std::exception_ptr& failure) const;

  JobTopology topology_;
  std::chrono::nanoseconds timeout_{};
  bool hogwild_ = false, shares_batches_ = false;
  JobPhase phase_ = JobPhase::kStart;
  std::shared_ptr<Communicator> communicator_;
  // What a process reports after a step, and what rank 0 tells all of it: the first signal, and its own step and clock.
  struct StepNews {
    int64_t signal = 0, saved_step = -1, waited = 0, save_is_due = 0;
  };
  // On rank 0: receives what the others have reported after the step before, and tells them the result.
  StepNews CollectReports();

  int64_t reports_ = 0;  // of this process
  StepNews reported_;    // the last one
  StepNews collected_;   // on rank 0: what it has told all, but not acted on yet
  int64_t saved_step_ = -1;
  bool save_agreed_ = false;
  // By process, in nanoseconds: as reported by the processes, and at the last TakeWaitTime.
  std::vector<int64_t> waited_, waited_before_;
  std::chrono::steady_clock::time_point taken_ = std::chrono::steady_clock::now(), busy_since_;
  std::chrono::nanoseconds busy_{};  // since that time
  std::string late_;
};

}  // namespace gradloom

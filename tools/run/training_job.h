// Several processes that train one run: each with its own devices, all with the same plan, and rank 0 alone writes. Those that use a
// trained model together share its batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/device_spec.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/session.h"
#include "runtime/session/shared_training.h"
#include "tools/config/configuration.h"
#include "tools/run/set_up.h"

namespace gradloom {

// The origin of a key that processes decide together.
inline constexpr char kDecidedByTheJob[] = "the job";

// What a process of a job is at, for the words of an error that ends it.
enum class JobPhase : uint8_t { kStart, kSteps, kEvaluation, kSave, kEnd, kPrediction };

// What all processes of a job do at the same places of their way through a command. Of a process by itself nothing is done.
class TrainingJob {
 public:
  // As the environment says: this process's rank, and where rank 0 is. `known` is told that before others are waited for, which may take
  // minutes. Throws as Communicator::Connect, and Error(kConfig) for an environment that contradicts itself.
  static std::shared_ptr<TrainingJob> Join(const Configuration& configuration, const std::function<void(const JobTopology&)>& known);

  const JobTopology& topology() const { return topology_; }
  bool alone() const { return communicator_ == nullptr; }
  // Whether this is the process that writes and shows.
  bool leads() const { return topology_.rank == 0; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  // For the screen: how this process reaches the others. "" where it is alone.
  std::string TransportLine() const;

  // What rank 0 says.
  std::string Told(const std::string& text) const;

  // Sets how many devices the job has, and the threads of each: devices.use is of a process, but of a run that goes on it is
  // that of the whole job, unless a flag says otherwise. Of GPUs it becomes the list of all processes, by rank, each number as its process
  // counts. Throws Error(kConfig, kDevice).
  void ShareDevices(Configuration& configuration, bool resumed) const;
  // Throw Error(kConfig) naming what differs between processes, with both values: before anything is made of the configuration, and
  // before the first step.
  void CheckConfiguration(const Configuration& configuration, bool resumed) const;
  void CheckSetUp(const TrainingSetUp& set_up) const;
  // Before any process takes memory for its devices: throws Error(kLimit), in all of them, where those of a host want more together than it
  // has. A process runs its block of the plan's ranks, or all of them where each works by itself (`apart`), as with train.sync hogwild.
  void CheckMemory(const Plan& plan, bool apart = false) const;

  // Throws Error(kConfig) where a line "name = value" of a process differs from rank 0's.
  void CheckSame(const std::string& lines, const std::string& help) const;
  // Of those that use a model. One that is placed on devices is used as it was trained, where there are devices for all processes: they are
  // shared as above. Else each process works by itself, with devices of its own: of several GPUs that all of a host see each takes one, and
  // the threads of the host are divided.
  void DivideWork(Configuration& configuration);
  // After that: whether all run each batch together.
  bool works_together() const { return works_together_; }
  // From here on others are waited for no longer than train.collective_timeout.
  void EndSetUp() const;

  // Where a process holds state that rank 0 does not give it: throws Error(kConfig) unless the file (or folder of a checkpoint) is the same
  // for all.
  void CheckWeights(const Plan& plan, const std::string& path) const;

  // Of a job whose processes write parts of checkpoints: throws Error(kConfig) where one does not see rank 0's folder.
  void CheckFolder(const std::string& folder) const;

  // Position, state and what the trainer keeps of rank 0, for all, and the step of the checkpoint that it is from, or -1. Ends the
  // set-up. `restored`: of rank 0, that checkpoint; null: from the start.
  void ShareState(Session& session, std::string& trainer_state, int64_t saved_step, const Checkpoint* restored);

  // Where the processes train one set of parameters without locks (train.sync), what they share; else null. All call it, with the plan that
  // all have. Errors as SharedTraining::Make's.
  std::shared_ptr<SharedTraining> ShareParameters(const Plan& plan) const;

  // After each step: the signal that stops the run after this step, 0: none. `received` here; what another process received stops the
  // run one step later, for all at once. `saved_step`: of rank 0's last checkpoint. `save_is_due`: that rank 0's clock says so.
  int StopSignal(int received, int64_t saved_step, bool save_is_due = false);
  // Whether rank 0 has said so after the step before: the same in all processes.
  bool save_agreed() const { return save_agreed_; }

  // Around what rank 0 does while the others wait for it.
  void SetBusy(bool busy);
  // How long this process has waited for others since this was asked last, and how long ago that is, in seconds.
  struct Waited {
    double seconds = 0, of = 0;
  };
  Waited TakeWaited();
  // Of rank 0, after TakeWaited, of that time: "rank 2 (host b, pid 4711): the others wait 31% of the time for it"; "": nobody is late.
  std::string LateProcess() const { return late_; }

  // What `run` gives; an error of this process ends the job for all.
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
  // What this process does from now on; kStart at first.
  void set_phase(JobPhase phase) { phase_ = phase; }

  // Of a kPeer that came after `step`, or in the one behind it: with the step, the phase, the last checkpoint, and how to go on.
  // `saved_step` as this process knows it, or -1: rank 0 has told of one that is two steps old.
  Error Explained(const Error& error, int64_t step, const std::string& run, int64_t saved_step) const;
  // When the last step is done, everywhere.
  void Leave() const;

 private:
  TrainingJob() = default;
  void ShareGpus(Configuration& configuration, const DeviceSpec& wanted, bool of_the_job) const;
  // The threads of each of the job's CPU devices: as many as a process by itself would take, of the host that has the fewest.
  void ShareThreads(Configuration& configuration, int devices) const;
  [[noreturn]] void RefuseTooFew(const Configuration& configuration, int devices) const;
  // The names of all processes, for messages.
  std::vector<std::string> Names() const;
  // Of what all processes find at the same place: none is to take another's end for a fault.
  [[noreturn]] void Refuse(const Error& error) const;
  // "waited in all-reduce #3 (loss)", "was saving": where this process was when it found that another one is gone.
  std::string Doing(const Error& error) const;
  // Of a kPeer of a process that has not said so yet: with that.
  Error Located(const Error& error) const;
  // Tells the others what ends this process.
  void AbortFor(const std::exception_ptr& failure) const;

  JobTopology topology_;
  std::chrono::nanoseconds timeout_{};
  bool hogwild_ = false, works_together_ = false;
  JobPhase phase_ = JobPhase::kStart;
  std::shared_ptr<Communicator> communicator_;
  bool told_ = false;  // what processes say after a step is under way
  int signal_ = 0;
  int64_t saved_step_ = -1;
  bool save_is_due_ = false, save_agreed_ = false;
  // By process, in nanoseconds: as the processes have told, and when it was taken last.
  std::vector<int64_t> waited_, waited_before_;
  std::chrono::steady_clock::time_point taken_ = std::chrono::steady_clock::now(), busy_since_;
  std::chrono::nanoseconds busy_{};  // since then
  std::string late_;
};

}  // namespace gradloom

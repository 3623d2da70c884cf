// The checkpoints of a run: when to save, and how to resume.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "runtime/base/background.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_part.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/records/run_records.h"
#include "tools/run/set_up.h"
#include "tools/run/train/resume_checks.h"
#include "tools/run/train/run_screen.h"
#include "tools/screen/log.h"

namespace gradloom {

// Whether a run's folder of checkpoints has any, loadable or not; then RunCheckpoints restores one or refuses. An absent folder has none.
bool HasCheckpoints(const std::string& folder);

// Must be the first to touch the checkpoints folder of a run: the constructor refuses if another process is training the run. All arguments
// are borrowed.
class RunCheckpoints : public TrainerObserver {
 public:
  // `folder`: of the checkpoints. `parts`: if other processes hold state that this one lacks, otherwise null. Errors as CheckpointFolder's.
  RunCheckpoints(const std::string& folder, const Configuration& configuration, const TrainingSetUp& set_up, Session& session, Log& log,
                 PartCollector* parts);

  // Restores the session from the newest checkpoint that can be loaded, or from the one that `from` names: "step-000100", "best", a path,
  // or "start" for none. Logs what it uses and what it skips and why. Returns false, with the session at the start, if the run has not
  // saved yet, or for "start". `any_plan`: the configuration was changed, so the plan may differ. Throws Error(kCheckpoint) if no
  // checkpoint can be loaded, or if the data is not that of the run.
  bool Restore(const std::string& from, const ResumeChecks& checks, bool any_plan);

  // The restored checkpoint, until it is dropped; null if nothing was restored. Other processes get their state from it.
  const Checkpoint* restored() const { return restored_ ? &*restored_ : nullptr; }
  void DropRestored() { restored_.reset(); }

  // The states that the restored checkpoint stored; "" at the start.
  const std::string& trainer_state() const { return trainer_state_; }
  const std::string& records_state() const { return records_state_; }

  // Sets what later saves store in addition to the session.
  void Keep(const Trainer& trainer, RunRecords& records, RunScreen& screen);

  // Saves at most once per step, however many reasons there are. The state is copied, and a thread writes it while the run continues. One
  // write runs at a time. A save that is asked for meanwhile waits for it, unless checkpoint.every is "auto": then a save after an epoch is
  // left out, and the best state is kept until it can be written, or another is better. The last save of the run, which needs no copy, and
  // those before it are waited for. An exception in a write is thrown by one of the next of these calls: Error(kDiverged) naming a
  // parameter that is not finite, or Error(kResource) if the write failed and checkpoint.on_error is not "continue".
  void OnStep(const StepReport& report) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnSave(SaveReason reason) override;
  // For a run that has failed: waits until all that was kept is written, and ignores errors.
  void WaitIgnoringErrors();

  int64_t saved_step() const { return saved_step_; }           // of the last save; -1: none
  int64_t saves() const { return saves_; }                     // checkpoints that this process has written
  const std::string& last_path() const { return last_path_; }  // "" where nothing was saved or restored
  double seconds() const { return seconds_; }                  // for which saves blocked the run

 private:
  // A save that is being written, or waits for that.
  struct PendingSave {
    SessionCopy copy;  // unused if there was no memory for it
    RunState state;
    bool best = false;
    int64_t batch = -1, step = -1;
  };
  Checkpoint Choose(const std::string& from);
  std::optional<Checkpoint> Newest();
  void Warn(const std::string& text);
  // Whether the write in progress is a reason not to save now.
  bool PutsOff(SaveReason reason);
  // Keeps the session's state in next_, as the best one. False if that takes too much memory.
  bool KeepBest();
  void Save(bool best, bool last);
  // Sets everything but the copy.
  void Describe(bool best, PendingSave& save) const;
  // Copies the session's state. False if there is no memory for it.
  bool Copy(PendingSave& save);
  // Starts to write current_ on the thread.
  void StartWrite();
  // Writes current_ with this state. May run on any thread; does not throw.
  void Write(const SavedState& saved);
  // Waits for the write in progress, if any, takes its result, and starts to write the state that waits for it.
  void Finish();
  // Takes the result of the write that has ended.
  void TakeResult();
  // Waits until nothing is left to write.
  void FinishAll();

  const TrainingSetUp& set_up_;
  Session& session_;
  Log& log_;
  PlanIdentity plan_;
  CheckpointFolder folder_;
  PartCollector* const parts_;
  const bool continue_on_failure_;  // if a save fails
  const Trainer* trainer_ = nullptr;
  RunRecords* records_ = nullptr;
  RunScreen* screen_ = nullptr;
  std::optional<Checkpoint> restored_;
  std::string trainer_state_, records_state_, last_path_;
  int64_t saved_batch_ = -1, saved_step_ = -1, saves_ = 0;
  double seconds_ = 0;

  // The write in progress, of current_.
  bool writing_ = false;
  std::atomic<bool> written_{false};  // its results are available:
  std::optional<SavedCheckpoint> saved_;
  std::exception_ptr failure_;
  PendingSave current_, next_;
  bool has_next_ = false;  // whether next_ is to be written after current_
  bool told_ = false;      // that there is no memory for a copy
  Background writer_;      // last member: its work uses all of the above
};

}  // namespace gradloom

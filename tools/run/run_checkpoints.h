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
#include "tools/run/run_records.h"
#include "tools/run/run_screen.h"
#include "tools/run/set_up.h"
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
  bool Restore(const std::string& from, bool any_plan);

  // The restored checkpoint, until it is dropped; null if nothing was restored. Other processes get their state from it.
  const Checkpoint* restored() const { return restored_ ? &*restored_ : nullptr; }
  void DropRestored() { restored_.reset(); }

  // The states that the restored checkpoint stored; "" at the start.
  const std::string& trainer_state() const { return trainer_state_; }
  const std::string& records_state() const { return records_state_; }

  // Sets what later saves store in addition to the session.
  void Keep(const Trainer& trainer, RunRecords& records, RunScreen& screen);

  // Saves at most once per step, however many reasons there are. The state is copied, and a thread writes it while the run continues. One
  // write runs at a time, and the last one of the run is waited for. An exception in a write is thrown by the next of these calls:
  // Error(kDiverged) naming a parameter that is not finite, or Error(kResource) if the write failed and checkpoint.on_error is not
  // "continue".
  void OnStep(const StepReport& report) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnSave(SaveReason reason) override;
  // For a run that has failed: waits for the current write and ignores its errors.
  void WaitIgnoringErrors();

  int64_t saved_step() const { return saved_step_; }           // of the last save; -1: none
  const std::string& last_path() const { return last_path_; }  // "" where nothing was saved or restored
  double seconds() const { return seconds_; }                  // for which saves blocked the run

 private:
  Checkpoint Choose(const std::string& from);
  std::optional<Checkpoint> Newest();
  void Warn(const std::string& text);
  // Whether to save now for this reason. Waits for the write in progress.
  bool Saves(SaveReason reason);
  void Save(bool best, bool last);
  void CheckData(const Checkpoint& checkpoint) const;
  // May run on any thread; does not throw.
  void Write(const SavedState& saved, const RunState& state, bool best);
  // Waits for the write in progress, if any, and takes its result.
  void Finish();

  const TrainingSetUp& set_up_;
  Session& session_;
  Log& log_;
  PlanIdentity plan_;
  CheckpointFolder folder_;
  PartCollector* const parts_;
  bool continue_on_failure_ = false;  // if a save fails
  const Trainer* trainer_ = nullptr;
  RunRecords* records_ = nullptr;
  RunScreen* screen_ = nullptr;
  std::optional<Checkpoint> restored_;
  std::string trainer_state_, records_state_, last_path_;
  int64_t saved_batch_ = -1, saved_step_ = -1;
  double seconds_ = 0;

  // The write in progress.
  bool writing_ = false;
  int64_t writing_batch_ = -1, writing_step_ = -1;
  std::atomic<bool> written_{false};  // its results are available:
  std::optional<SavedCheckpoint> saved_;
  std::exception_ptr failure_;
  SessionCopy copy_;
  Background writer_;  // last member: its work uses all of the above
};

}  // namespace gradloom

// The checkpoints of a run: when it saves, and how it goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "runtime/base/background.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/checkpoint_folder.h"
#include "runtime/session/checkpoint_part.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/run_records.h"
#include "tools/run/run_screen.h"
#include "tools/run/set_up.h"
#include "tools/screen/log.h"

namespace gradloom {

// The first thing of a run that touches its folder of checkpoints: where another process trains the run, the
// constructor refuses. All arguments are borrowed.
class RunCheckpoints : public TrainerObserver {
 public:
  // `folder`: of the checkpoints. `parts`: where other processes hold state that this one has not; else null. Errors as CheckpointFolder's.
  RunCheckpoints(const std::string& folder, const Configuration& configuration, const TrainingSetUp& set_up, Session& session, Log& log,
                 PartsOfJob* parts);

  // Puts the session where a checkpoint has it: the newest one that loads, or the one that `from` names: "step-000100",
  // "best", a path, "start" for none. Logs what it takes and what it passes over and why. False where the run has not
  // saved yet, or for "start": the session is left at the start. `any_plan`: the configuration was changed, so that
  // the plan may differ. Throws Error(kCheckpoint) where no checkpoint loads or the data are not those of the run.
  bool Restore(const std::string& from, bool any_plan);

  // What was restored, until it is dropped; null: nothing was. Other processes have their state from it.
  const Checkpoint* restored() const { return restored_ ? &*restored_ : nullptr; }
  void DropRestored() { restored_.reset(); }

  // What the restored checkpoint kept of these; "" at the start.
  const std::string& trainer_state() const { return trainer_state_; }
  const std::string& records_state() const { return records_state_; }

  // What saves from here on keep besides the session.
  void Keep(const Trainer& trainer, RunRecords& records, RunScreen& screen);

  // One checkpoint for each place, however many reasons there are. The state is copied, and a thread writes it while the run goes on; there
  // is one such write at a time, and the run's last is waited for. What a write throws is thrown by the next call of these:
  // Error(kDiverged) naming a parameter that is not finite, Error(kResource) where it failed and checkpoint.on_error is not "continue".
  void OnStep(const StepReport& report) override;
  void OnSave(SaveReason reason) override;
  // For a run that has failed: what is being written is waited for, and what goes wrong with it is no longer of interest.
  void Settle();

  int64_t saved_step() const { return saved_step_; }           // of that; -1
  const std::string& last_path() const { return last_path_; }  // "" where nothing was saved or restored
  double seconds() const { return seconds_; }                  // for which saves held the run up

 private:
  Checkpoint Choose(const std::string& from);
  std::optional<Checkpoint> Newest();
  void Warn(const std::string& text);
  // Whether there is a save now, for this reason. Waits for the one under way.
  bool Saves(SaveReason reason);
  void Save(bool best, bool last);
  void CheckData(const Checkpoint& checkpoint) const;
  // Any thread; throws nothing.
  void Write(const SavedState& saved, const RunState& state, bool best);
  // Waits for the write under way, if there is one, and takes what came of it.
  void Finish();

  const TrainingSetUp& set_up_;
  Session& session_;
  Log& log_;
  PlanIdentity plan_;
  CheckpointFolder folder_;
  PartsOfJob* const parts_;
  bool go_on_without_ = false;  // where a save fails
  const Trainer* trainer_ = nullptr;
  RunRecords* records_ = nullptr;
  RunScreen* screen_ = nullptr;
  std::optional<Checkpoint> restored_;
  std::string trainer_state_, records_state_, last_path_;
  int64_t saved_batch_ = -1, saved_step_ = -1;
  double seconds_ = 0;

  // The write under way.
  bool writing_ = false;
  int64_t writing_batch_ = -1, writing_step_ = -1;
  std::atomic<bool> written_{false};  // what came of it is there:
  std::optional<SavedCheckpoint> saved_;
  std::exception_ptr failure_;
  SessionCopy copy_;
  Background writer_;  // last: its work uses all of the above
};

}  // namespace gradloom

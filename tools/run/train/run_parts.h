// Saves a run in parts if rank 0 does not hold the whole model: each process writes its part of a checkpoint after the same step, and
// finally sends rank 0 what it writes of the run.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/checkpoint/checkpoint_part.h"
#include "runtime/comm/communicator.h"
#include "runtime/session/job_state.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"

namespace gradloom {

// For processes other than rank 0: writes their part of each checkpoint on a thread, as RunCheckpoints does for everything else. Rank 0
// reports errors.
class RunCheckpointPart : public TrainerObserver {
 public:
  // The session is borrowed.
  RunCheckpointPart(Session& session, std::unique_ptr<PartWriter> writer) : session_(session), part_(std::move(writer)) {}

  // Throws Error(kPeer).
  void OnSave(SaveReason reason) override;

 private:
  // May run on any thread; does not throw.
  void Write(const SavedState& saved);

  Session& session_;
  const std::unique_ptr<PartWriter> part_;
  SessionCopy copy_;
  Background writer_;  // last member: its work uses all of the above
};

class RunParts {
 public:
  // `save`: the save interval of the run. Does nothing if rank 0 holds everything (a null communicator stands for a single process).
  RunParts(const Session& session, std::shared_ptr<Communicator> communicator, const Interval& save);

  // Whether the state is saved in parts.
  bool needed() const { return communicator_ != nullptr; }

  // For RunCheckpoints on rank 0; null if rank 0 holds everything.
  PartCollector* saves() { return saves_ ? &*saves_ : nullptr; }
  // For other ranks; null if ranks before this one hold everything that it holds.
  std::unique_ptr<RunCheckpointPart> MakePart(Session& session) const;

  // Starts the clock of the save interval.
  void StartClock() { saved_at_ = std::chrono::steady_clock::now(); }
  // On rank 0, for each TrainingJob::StopSignal: whether its clock requires a save. True once per save.
  bool IsSaveDue();
  // Whether the processes are to save now, given what they agreed on.
  bool IsDue(bool agreed);

  // On rank 0 at the end of the run, while the other ranks send their parts (SendParts).
  StateOfJob State(const Session& session) const { return {session, communicator_.get()}; }
  void SendParts(const Session& session) const { SendState(session, *communicator_); }

 private:
  std::shared_ptr<Communicator> communicator_;
  const Interval save_;
  std::optional<PartCollector> saves_;
  bool asked_ = false;
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace gradloom

// What the processes of a job do for a run where rank 0 does not hold all of the model: each saves its part of a checkpoint, all after the
// same step, and gives rank 0 in the end what it writes of the run.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/comm/communicator.h"
#include "runtime/session/checkpoint_part.h"
#include "runtime/session/job_state.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"

namespace gradloom {

// Of a process that does not lead: writes its part of each checkpoint, on a thread of its own, as RunCheckpoints does with all else. What
// goes wrong with it rank 0 says.
class RunCheckpointPart : public TrainerObserver {
 public:
  // The session is borrowed.
  RunCheckpointPart(Session& session, std::unique_ptr<PartWriter> writer) : session_(session), part_(std::move(writer)) {}

  // Throws Error(kPeer).
  void OnSave(SaveReason reason) override;

 private:
  // Any thread; throws nothing.
  void Write(const SavedState& saved);

  Session& session_;
  const std::unique_ptr<PartWriter> part_;
  SessionCopy copy_;
  Background writer_;  // last: its work uses all of the above
};

class RunParts {
 public:
  // `save`: how often the run saves. Where rank 0 holds all (a null communicator: there is one process) nothing is done.
  RunParts(const Session& session, std::shared_ptr<Communicator> communicator, const Interval& save);

  // Whether it does not.
  bool needed() const { return communicator_ != nullptr; }

  // Of rank 0, for RunCheckpoints; null where it holds all.
  PartsOfJob* saves() { return saves_ ? &*saves_ : nullptr; }
  // Of another rank; null where those before it hold what it holds.
  std::unique_ptr<RunCheckpointPart> MakePart(Session& session) const;

  // From now on the clock counts.
  void StartClock() { saved_at_ = std::chrono::steady_clock::now(); }
  // Of rank 0, after each step: whether it asks all to save, because of its clock. Once for each such save.
  bool AsksToSave();
  // What they have agreed on, when it is their turn.
  bool IsDue(bool agreed);

  // Of rank 0 at the end of the run, while the others give their parts (Give).
  StateOfJob State(const Session& session) const { return {session, communicator_.get()}; }
  void Give(const Session& session) const { GiveState(session, *communicator_); }

 private:
  std::shared_ptr<Communicator> communicator_;
  const Interval save_;
  std::optional<PartsOfJob> saves_;
  bool asked_ = false;
  std::chrono::steady_clock::time_point saved_at_;
};

}  // namespace gradloom

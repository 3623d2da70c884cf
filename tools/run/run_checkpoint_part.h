// What a process of a job that does not lead does for the checkpoints of the run.
#pragma once

#include <memory>

#include "runtime/exec/background.h"
#include "runtime/session/checkpoint_part.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/trainer.h"

namespace gradloom {

// Writes this process's part of each, on a thread of its own, as RunCheckpoints does with all else. What goes wrong with it process 0 says.
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

}  // namespace gradloom

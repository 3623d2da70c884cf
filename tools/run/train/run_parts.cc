#include "tools/run/train/run_parts.h"

#include <new>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {

void RunCheckpointPart::OnSave(SaveReason reason) {
  // The writer also reads messages of rank 0.
  writer_.Wait();
  if (!part_->Announced()) return;
  const bool last = reason == SaveReason::kEnd || reason == SaveReason::kStopRequested;
  // As in RunCheckpoints::Save.
  bool copied = !last || session_.plan().HasPartialState();
  try {
    if (copied) copy_.Take(session_);
  } catch (const std::bad_alloc&) {
    copied = false;
  }
  if (!copied) {
    copy_.Release();
    return Write(SavedStateOf(session_));
  }
  writer_.Start([this] { Write(copy_.state()); });
  if (last) writer_.Wait();
}

void RunCheckpointPart::Write(const SavedState& saved) {
  try {
    part_->Write(saved, [](const SavedState& part) { CheckFinite(part); });
  } catch (const Error&) {
    // The job has failed; the next step reports it.
  }
}

RunParts::RunParts(const Session& session, std::shared_ptr<Communicator> communicator, const Interval& save) : save_(save) {
  if (FirstProcessHoldsState(session.plan(), communicator.get())) return;
  communicator_ = std::move(communicator);
  if (communicator_->process() == 0) saves_.emplace(session.plan(), communicator_);
}

std::unique_ptr<RunCheckpointPart> RunParts::MakePart(Session& session) const {
  auto writer = needed() ? PartWriter::Make(session.plan(), communicator_) : nullptr;
  return writer == nullptr ? nullptr : std::make_unique<RunCheckpointPart>(session, std::move(writer));
}

bool RunParts::IsSaveDue() {
  if (!saves_ || asked_ || save_.unit != Interval::Unit::kSeconds) return false;
  asked_ = std::chrono::steady_clock::now() - saved_at_ >= std::chrono::seconds(save_.count);
  return asked_;
}

bool RunParts::IsDue(bool agreed) {
  if (!agreed) return false;
  asked_ = false;
  StartClock();
  return true;
}

}  // namespace gradloom

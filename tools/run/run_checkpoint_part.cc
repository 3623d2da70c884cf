#include "tools/run/run_checkpoint_part.h"

#include <new>

#include "runtime/base/error.h"

namespace gradloom {

void RunCheckpointPart::OnSave(SaveReason reason) {
  // It reads what process 0 says, too.
  writer_.Wait();
  if (!part_->Announced()) return;
  try {
    copy_.Take(session_);
  } catch (const std::bad_alloc&) {
    return Write(SavedStateOf(session_));
  }
  writer_.Start([this] { Write(copy_.state()); });
  if (reason == SaveReason::kEnd || reason == SaveReason::kStopRequested) writer_.Wait();
}

void RunCheckpointPart::Write(const SavedState& saved) {
  try {
    part_->Write(saved, [](const SavedState& part) { CheckFinite(part); });
  } catch (const Error&) {
    // The job has failed, and the step finds it out.
  }
}

}  // namespace gradloom

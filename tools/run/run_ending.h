// How a training run ended, and what it says of that.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "runtime/session/session.h"
#include "runtime/session/shared_training.h"
#include "runtime/session/trainer.h"
#include "tools/run/set_up.h"
#include "tools/screen/log.h"

namespace gradloom {

struct RunEnding {
  StopReason stopped = StopReason::kDone;
  int signal = 0;                                  // that stopped it
  std::optional<std::pair<double, int64_t>> best;  // of what is watched, and the step it was reached at
  std::optional<EpochReport> last_epoch;           // none where a resume found nothing to do
  int64_t batches_left_out = 0;                    // whose loss was not finite
  double seconds = 0;                              // of all, from the first line on
  double train_seconds = 0, save_seconds = 0, waited_seconds = 0;
  std::string run, checkpoint, model;  // paths: the folder, the last checkpoint, and what was exported of a run that is complete
  // Of processes that train without locks.
  int processes = 0;
  std::optional<SharedCounts> shared;
};

// The last lines on the screen, without the table.
void PrintEnding(Log& log, const RunEnding& ending, const TrainingSetUp& set_up, const Session& session);

// The last line for whoever runs many: one object.
nlohmann::json ReportOf(const RunEnding& ending, const TrainingSetUp& set_up, const Session& session);

}  // namespace gradloom

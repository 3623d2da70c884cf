// How a training run ended, and the lines that report it.
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
  int signal = 0;                                  // the signal that stopped it
  std::optional<std::pair<double, int64_t>> best;  // the best watched value, and its step
  std::optional<EpochReport> last_epoch;           // the last one that has ended, also before a resume; nullopt: none has
  int64_t batches_left_out = 0;                    // batches whose loss was not finite
  double seconds = 0;                              // total, from the first line on
  double train_seconds = 0, save_seconds = 0, waited_seconds = 0;
  std::string run, checkpoint, model;  // paths: the folder, the last checkpoint, and the exported model of a complete run
  // For processes that train without locks.
  int processes = 0;
  std::optional<SharedCounts> shared;
};

// Prints the last lines on the screen, without the table.
void PrintEnding(Log& log, const RunEnding& ending, const TrainingSetUp& set_up, const Session& session);

// The final JSON object for programs.
nlohmann::json ReportOf(const RunEnding& ending, const TrainingSetUp& set_up, const Session& session);

// The same for a run that is only set up (--dry-run).
nlohmann::json ReportOfDryRun(const TrainingSetUp& set_up);

}  // namespace gradloom

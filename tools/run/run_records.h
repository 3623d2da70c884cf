// What a run leaves for other programs: metrics.jsonl, results.csv and TensorBoard's event file.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/session/event_file.h"
#include "runtime/session/trainer.h"

namespace gradloom {

struct RecordOptions {
  int64_t every = 50;  // updates between lines of training
  bool tensorboard = true;
  std::vector<std::string> eval_columns;  // of results.csv: "loss" and the metrics, or none
};

// metrics.jsonl has a line {"t","step","epoch","split":"train","loss","lr","samples_per_s"} for each `every` updates
// and at the end of each epoch, where loss is the mean since the line before, and one with "split":"eval" and the
// metrics for each evaluation. results.csv has a line per epoch. Both are appended to. The event file has the same
// numbers under train/loss, train/lr, train/samples_per_sec, train/grad_norm, eval/loss, eval/<metric>.
class RunRecords : public TrainerObserver {
 public:
  // Throws Error(kResource) where a file cannot be written, as do all the others.
  RunRecords(const std::string& folder, const RecordOptions& options);

  void OnStep(const StepReport& step) override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnEpoch(const EpochReport& epoch) override;

 private:
  void WriteTrainLine();
  void WriteJsonLine(const std::string& line);

  std::string folder_;
  RecordOptions options_;
  std::ofstream json_, csv_;
  std::unique_ptr<EventFile> events_;
  StepReport last_;
  double loss_sum_ = 0;
  int64_t rows_ = 0;
};

}  // namespace gradloom

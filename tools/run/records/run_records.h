// The records of a run for other programs: metrics.jsonl, results.csv and TensorBoard's event file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/session/event_file.h"
#include "runtime/session/trainer.h"

namespace gradloom {

struct RecordOptions {
  int64_t every = 50;  // updates between lines of training
  bool tensorboard = true;
  std::map<std::string, Hparam> hparams;  // hyperparameters of the run, for TensorBoard
  std::vector<std::string> terms;         // the plan's loss_terms
  std::vector<std::string> eval_columns;  // columns of results.csv: "loss", its terms and the metrics, or none
  int64_t gpu_bytes = 0;                  // see TrainLine
  // What the run has of each device now, for memory.json; empty: there is no such file.
  std::function<std::vector<DeviceMemory>()> memory;
  // Called once, if a record cannot be written for lack of space or another failure of the disk: from then on such records are left out and
  // counted. Empty: the failure is thrown.
  std::function<void(const Error& error)> on_failure;
};

// A file of lines that are appended, each of which is written whole or not at all.
class LineFile {
 public:
  // Creates the file if it is absent. A last line without its end, which a crash has left, is cut off. Throws Error(kResource).
  explicit LineFile(std::string path);

  // `line` has its line break. Throws Error(kResource); the file is then as before.
  void Append(const std::string& line);
  int64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

// The objects of metrics.jsonl's lines. `loss`: mean over the batches that a line covers; `terms`: the same of its terms, by name.
// `gpu_bytes`: the memory that the run's plan takes on the GPU that holds most of it; 0 if it runs on the CPU.
nlohmann::json TrainLine(const StepReport& step, double loss, const std::map<std::string, double>& terms, int64_t gpu_bytes);
nlohmann::json EvaluationLine(const EvaluationReport& evaluation);

// metrics.jsonl has a line {"t","step","epoch","split":"train","loss","lr","mem_mb","gpu_mem_mb","samples_per_s"} for every `every` updates
// and at the end of each epoch, where loss is the mean since the previous line, and a line with "split":"eval" and the metrics for each
// evaluation. mem_mb is what this process has resident; gpu_mem_mb is only there if the run has GPUs. The terms of a loss that has several
// are "loss/NAME" beside "loss" everywhere.
// results.csv has a line per epoch; a resumed run that measures something else adds columns. Both are appended to. The event file has the
// same numbers as train/loss, train/lr, train/samples_per_sec, train/grad_norm, eval/loss and eval/<metric>.
// memory.json has the memory of each device after the first step, then as of a recent one, and at the end of a run, also of one that fails:
// then the destructor writes it.
class RunRecords : public TrainerObserver {
 public:
  // Throws Error(kResource) if a file cannot be written, as do the other functions without RecordOptions::on_failure.
  RunRecords(const std::string& folder, const RecordOptions& options);

  // Continues from the result of state() at this update: later lines are cut off. Throws Error(kCheckpoint) for an invalid text.
  RunRecords(const std::string& folder, const RecordOptions& options, const std::string& state, int64_t step);
  ~RunRecords() override;
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;

  // The state before anything was written.
  static constexpr char kStart[] = R"({"loss_sum":0,"rows":0,"metrics_bytes":0,"results_bytes":0})";

  // One line of text with the sizes of the files and the running mean for the next line.
  std::string state() const;

  // The losses and the evaluation of the last epoch that results.csv had when it was opened; nullopt if it had none.
  const std::optional<EpochReport>& last_epoch() const { return last_epoch_; }

  // The number of records that were left out.
  int64_t lost() const { return lost_; }

  void OnStep(const StepReport& step) override;
  void OnEvaluationStart() override;
  void OnEvaluation(const EvaluationReport& evaluation) override;
  void OnEpoch(const EpochReport& epoch) override;

  // Call at the end of a run that has not failed: writes what was not due yet.
  void Finish();

 private:
  void Open(int64_t next_step);
  void OpenResults();
  void WriteTrainLine();
  void WriteJsonLine(const nlohmann::json& line);
  void AddEvent(int64_t step, const std::map<std::string, double>& scalars);
  // Writes memory.json as of now, unless that was done within `interval`.
  void WriteMemory(std::chrono::steady_clock::duration interval);
  // Writes a record, or counts it as lost.
  void Write(const std::function<void()>& write);

  std::string folder_;
  RecordOptions options_;
  std::optional<LineFile> json_, csv_;
  std::vector<std::string> columns_;  // of results.csv
  int64_t csv_lines_ = 0;             // of it, with the header
  std::optional<EpochReport> last_epoch_;
  std::unique_ptr<EventFile> events_;
  // memory.json: when it was written, and after which step; nullopt: not yet.
  std::optional<std::chrono::steady_clock::time_point> memory_written_;
  int64_t memory_step_ = -1;
  bool finished_ = false;
  int64_t lost_ = 0;
  StepReport last_;
  int64_t last_step_ = -1;  // of an update
  int64_t step_ = 0;        // the run has got to
  // Since the last line: the rows trained on, and the means over them.
  int64_t rows_ = 0;
  WeightedMean loss_;
  std::vector<WeightedMean> terms_;  // by position in options_.terms
};

}  // namespace gradloom

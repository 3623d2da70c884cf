// A model with trained weights, ready to be judged and used: from the folder of a run, or from a plan and weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/session/session.h"
#include "runtime/session/trainer.h"
#include "runtime/session/training_data.h"
#include "tools/config/configuration.h"
#include "tools/run/generation.h"
#include "tools/run/stored_tensors.h"

namespace gradloom {

class TrainingJob;

struct TrainedSource {
  std::string path;     // the folder of a run, or a plan
  std::string weights;  // a safetensors file, or the folder of a checkpoint; "": the run's own
  std::string from;     // a checkpoint of the run: step-000500, or best; "": the newest state there is
};

// What the source means, for StoredTensors: of a run that did not end, that of its newest checkpoint that loads. Throws
// Error(kConfig) where a plan comes without weights, Error(kCheckpoint) where the run has saved nothing that loads.
std::string WeightsPathOf(const TrainedSource& source);

class TrainedModel {
 public:
  // `configuration`: of the run with the flags over it, or the flags alone for a plan. Throws Error(kConfig) where a
  // plan comes without weights, Error(kCheckpoint) where the weights are not those of the plan.
  TrainedModel(const TrainedSource& source, Configuration configuration);

  // What loading found that is worth a line on the screen.
  const std::vector<std::string>& notes() const { return notes_; }

  // Where its weights are from.
  const std::string& weights_path() const { return weights_path_; }

  struct Evaluation {
    int64_t rows = 0;
    std::map<std::string, double> values;  // "loss" and the metrics
  };

  // Over a file, or with "" over the evaluation data of the run. `notes` gets what is worth a line on the screen. `job`: the processes that
  // share the batches, or run them together; rank 0 gets the values.
  Evaluation Evaluate(const std::string& data, std::vector<std::string>& notes, const TrainingJob& job) const;

  // The outputs for the rows of a file, by name; columns of targets are not needed. Throws Error(kConfig) for outputs
  // that do not have a row per sample and a file of several batches. `job` as for Evaluate.
  std::map<std::string, Tensor> Predict(const std::string& data, std::vector<std::string>& notes, const TrainingJob& job) const;

  struct Generated {
    std::vector<int64_t> tokens;  // what was added, without the prompt
    std::string text;
  };

  // Of a language model: one input int64[batch, window] and scores [batch, window, tokens] of the token that follows each,
  // which may depend on those before it alone. Throws Error(kConfig) for another kind of model.
  Generated Generate(const GenerationOptions& options) const;

 private:
  struct Compiled;
  struct LanguageModel {
    Session session;  // for one row
    std::string input, output;
    int64_t window = 0, tokens = 0;
  };
  // `batch` 0: the configured one.
  Compiled CompileFor(EntryKind kind, int64_t batch = 0) const;
  LanguageModel StartLanguageModel() const;
  Dataset Load(const std::string& data, const Compiled& compiled, std::vector<std::string>& notes,
               const std::map<std::string, ClassRange>& classes = {}) const;
  // Ends the set-up, and the job where its processes have other weights or data than rank 0.
  void CheckSame(const TrainingJob& job, const Dataset& rows, int64_t batch) const;

  Configuration configuration_;
  std::vector<std::string> notes_;
  std::string weights_path_;
  std::string model_bytes_;  // ONNX with the weights in it
  std::string model_name_;
  ColumnMap columns_;
  std::map<std::string, std::vector<Transform>> fitted_;
  TrainingNames names_;
};

// A plan file, or the plan of a run folder.
std::string PlanPathOf(const std::string& path);

// The weights of a run or a file: parameters and running statistics by name. `notes` gets a line where the file has tensors that the plan
// does not keep. Throws Error(kCheckpoint) for a tensor that is absent, has another shape, or has no floating elements where it should.
std::map<std::string, Tensor> WeightsOf(const Plan& plan, const std::string& path, std::vector<std::string>& notes);

// One line that names the file's tensors which the plan does not keep; "": there are none.
std::string UnusedTensors(const Plan& plan, const StoredTensors& stored);

}  // namespace gradloom

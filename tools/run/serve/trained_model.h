// A model with trained weights, ready for evaluation and inference: from the folder of a run, or from a plan and weights.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/loss_info.h"
#include "runtime/session/confusion.h"
#include "runtime/session/session.h"
#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/options/data_options.h"
#include "tools/run/serve/generation.h"
#include "tools/run/serve/predictions.h"
#include "tools/run/train/stored_tensors.h"

namespace gradloom {

class TrainingJob;

struct TrainedSource {
  std::string path;      // the folder of a run, or a plan
  std::string weights;   // a safetensors file, or the folder of a checkpoint; "": the run's own
  std::string from;      // a checkpoint of the run: step-000500, or best; "": the newest state
  bool averages = true;  // take the moving averages of weights, where training has kept them
};

// Opens and verifies the weights: of a run that did not end, its newest checkpoint that can be loaded. `notes` receives a line for each
// newer one that cannot. Throws Error(kConfig) for a plan without weights, Error(kCheckpoint) if the run has no checkpoint that can be
// loaded, or if its final weights are damaged, and like StoredTensors.
StoredTensors OpenWeights(const TrainedSource& source, std::vector<std::string>& notes);

class TrainedModel {
 public:
  // `configuration`: that of the run with the flags on top, or only the flags for a plan. Throws Error(kConfig) for a plan without weights,
  // Error(kCheckpoint) if the weights do not belong to the plan.
  TrainedModel(const TrainedSource& source, Configuration configuration);

  // Notes from loading, for the screen.
  const std::vector<std::string>& notes() const { return notes_; }

  // The file or folder of its weights.
  const std::string& weights_path() const { return weights_path_; }

  struct Evaluation {
    int64_t rows = 0;
    std::map<std::string, double> values;  // "loss", its terms if there are several, and the metrics
    // If asked for, of the first loss that compares classes: what the model takes for what, and the names of the classes.
    std::optional<ConfusionMatrix> confusion;
    std::vector<std::string> classes;
  };

  // Evaluates on a file, or with "" on the evaluation data of the run. `confusion`: whether to count which class is taken for which; throws
  // Error(kConfig) if no loss compares classes. `notes` receives lines for the screen. `job`: the processes that divide the batches, or run
  // them together; rank 0 gets the values.
  Evaluation Evaluate(const std::string& data, bool confusion, std::vector<std::string>& notes, const TrainingJob& job) const;

  // What predictions are: the outputs as they are, or
  struct PredictionForm {
    bool classes = false;        // the predicted classes instead of the outputs that losses compare with classes
    bool probabilities = false;  // a probability for each class instead of them, or besides the predicted classes
    bool target_units = false;   // without the transforms of the targets with which losses compare outputs
    std::string keep;            // columns of a table to copy to the predictions: a selection as in CsvSelection; "": none
  };

  // The outputs for the rows of a file, by name; target columns are not needed. Throws Error(kConfig) if there are no outputs of the form
  // that is asked for, and for outputs without a row per sample if the file has several batches. `job` as for Evaluate.
  Predictions Predict(const std::string& data, const PredictionForm& form, std::vector<std::string>& notes, const TrainingJob& job) const;

  struct Generated {
    std::vector<int64_t> tokens;  // the generated tokens, without the prompt
    std::string text;
  };

  // For a language model: one input int64[batch, window], and scores [batch, window, tokens] of the token after each position, which may
  // depend only on the preceding ones. Throws Error(kConfig) for other models.
  Generated Generate(const GenerationOptions& options) const;

 private:
  struct Compiled;
  struct LanguageModel {
    Session session;  // for one row
    std::string input, output;
    int64_t window = 0, tokens = 0;
  };
  // `batch` 0: the configured one. `data`: what the model is fed, whose sequences may have other lengths than those trained on; "": as in
  // the run.
  Compiled CompileFor(EntryKind kind, int64_t batch, const std::string& data = "") const;
  LanguageModel StartLanguageModel() const;
  // `options`: what SetTargets sets, or only the targets.
  Dataset Load(const std::string& data, const Compiled& compiled, std::vector<std::string>& notes, DataOptions options) const;
  // How the first loss that compares classes reads them. Throws Error(kConfig) if there is none.
  MetricSpec ComparedClasses() const;
  // The names of a target's classes in the data that was trained on, in their order; numbers where they have none.
  std::vector<std::string> NamesOfClasses(const std::string& target, int64_t count) const;
  // Replaces outputs by the classes that they predict, by the probabilities of all classes, or by both. `named`: whether `predictions` gets
  // the names, too.
  void ClassifyOutputs(const PredictionForm& form, bool named, Predictions& predictions) const;
  // By output, the target that has transforms and that a loss of numbers compares it with.
  std::map<std::string, std::string> TransformedTargets() const;
  // Undoes the transforms of these targets (TransformedTargets) in the outputs that are compared with them.
  void UndoTransforms(const std::map<std::string, std::string>& targets, Predictions& predictions) const;
  // Ends the set-up phase, and the job if its processes have other weights or data than rank 0.
  void CheckSame(const TrainingJob& job, const Dataset& rows, int64_t batch) const;

  Configuration configuration_;
  std::vector<std::string> notes_;
  std::string weights_path_;
  std::optional<Model> model_;  // with the weights
  RecordedData recorded_;
  std::vector<LossInfo> losses_;  // of the plan
};

// A plan file, or the plan of a run's folder.
std::string PlanPathOf(const std::string& path);

// The types of the weights among stored tensors, by name: of parameters, running statistics, and those that the plan keeps frozen, if they
// are stored. `notes` receives a line if there are tensors that the model does not have. Throws Error(kCheckpoint) for a tensor that is
// missing, has another shape, or is not floating-point where it should be.
std::map<std::string, TensorView> TypesOfWeights(const Plan& plan, const StoredTensors& stored, std::vector<std::string>& notes);

// These weights; with `averages`, their moving averages where they are stored. `notes` also receives a warning of values that are not
// finite. Throws Error(kResource) if there is no memory for them.
std::map<std::string, Tensor> WeightsOf(const Plan& plan, const StoredTensors& stored, bool averages, std::vector<std::string>& notes);

// The names of the stored tensors with the trained values of the plan's weights (TrainedTensor), by name of the weight. `averages` false:
// each is itself. `notes` receives a line if averages are taken.
std::map<std::string, std::string> TrainedTensors(const Plan& plan, const StoredTensors& stored, bool averages,
                                                  std::vector<std::string>& notes);

// One line that lists the file's tensors that are neither state of the plan nor among `known`; "" if there are none.
std::string UnusedTensors(const Plan& plan, const StoredTensors& stored, const std::set<std::string>& known);

}  // namespace gradloom

// What a configuration comes to: the model, its data and a plan for both. train, resume, eval and predict share it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/trainer.h"
#include "runtime/session/training_data.h"
#include "tools/config/configuration.h"
#include "tools/run/plan_recipe.h"

namespace gradloom {

struct TrainingSetUp {
  std::string model_path;
  std::shared_ptr<const Plan> plan;  // steps and evaluations at every batch size that the data need
  TrainingData data;
  std::string loss;        // the first one, as --loss would say it: what was guessed, if it was
  TrainerOptions options;  // without what is called back
  CompileReport report;
  std::vector<std::string> notes;  // for the screen, one line each: what was guessed, what flags overruled
  double compile_seconds = 0;
  // Texts of keys that the model or this machine has decided, which a run keeps with its configuration: what it is resumed with must not
  // hang on them.
  std::map<std::string, std::string> decided;
};

// Applies --micro-batch to the configuration (ApplyMicroBatch). `planned`: what model.plan names, where it is read already. Throws Error of
// any class that names the model, the data or a key.
TrainingSetUp SetUpTraining(Configuration& configuration, std::optional<RecipePlan> planned = std::nullopt);

// The feeds that are no input of the model.
std::set<std::string> TargetsAmong(const std::vector<Feed>& feeds, const Graph& model);

// Whether this is one of several processes that have each their share of the rows of a batch, or of the batches (DataOptions::on_demand).
bool ReadsOnDemand(const Configuration& configuration);

// The evaluation data of a run, as its training had them; `targets` as in DataOptions. Throws Error(kConfig) where it
// had none.
Dataset EvaluationDataOf(const Configuration& configuration, const std::vector<Feed>& feeds, const std::set<std::string>& targets,
                         std::vector<std::string>& notes);

// The metrics of the configuration; those that name no output and target take the first loss's. Of an empty output
// that is the graph's first.
std::vector<MetricSpec> MetricsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph);

// Which classes the targets of the losses may have.
std::map<std::string, ClassRange> ClassesOf(const Recipe& recipe, const Graph& graph);

// The divisor of a batch's loss where it is a mean over something else than rows: not ignored or weighted classes.
// Empty where rows will do. With several losses that divide differently rows are taken.
std::function<double(const Feeds&)> LossWeightOf(const Recipe& recipe);

// Parameters and running statistics of a safetensors file, or of a checkpoint's folder, in place of those that the session has; optimizer
// state, accumulated gradients and the loss scale of the file are left aside. Names that the session lacks are named in a note;
// Error(kCheckpoint) where the file has no weight of it.
void LoadWeights(Session& session, const std::string& path, std::vector<std::string>& notes);

}  // namespace gradloom

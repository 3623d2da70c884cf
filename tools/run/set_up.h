// Turns a configuration into a model, its data and a plan for both. Used by train, resume, eval and predict.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/data/training_data.h"
#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"
#include "tools/run/plan_recipe.h"

namespace gradloom {

struct TrainingSetUp {
  std::string model_path;
  std::shared_ptr<const Plan> plan;  // has steps and evaluations for every batch size that the data needs
  TrainingData data;
  std::string loss;        // the first loss in the syntax of --loss, possibly guessed
  TrainerOptions options;  // without callbacks
  CompileReport report;
  std::vector<std::string> notes;  // for the screen, one line each: guesses, and values that flags override
  double compile_seconds = 0;
  // Values that were derived from the model or this machine. A run stores them with its configuration, because a resumed run must not
  // depend on them.
  std::map<std::string, std::string> decided;
};

// Applies --micro-batch to the configuration (ApplyMicroBatch). `planned`: the plan that model.plan names, if it has already been read.
// Throws Error of any class that names the model, the data or a key.
TrainingSetUp SetUpTraining(Configuration& configuration, std::optional<RecipePlan> planned = std::nullopt);

// The feeds that are not inputs of the model.
std::set<std::string> TargetsAmong(const std::vector<Feed>& feeds, const Graph& model);

// Whether this is one of several processes that each read their share of the rows of a batch, or of the batches (DataOptions::on_demand).
bool ReadsOnDemand(const Configuration& configuration);

// The evaluation data of a run, as in its training; `targets` and `classes` as in DataOptions. Throws Error(kConfig) if there was none.
Dataset EvaluationDataOf(const Configuration& configuration, const std::vector<Feed>& feeds, const std::set<std::string>& targets,
                         const std::map<std::string, ClassRange>& classes, std::vector<std::string>& notes);

// The configured metrics. Those without an output and target use those of the first loss; an empty output means the graph's first one. How
// they read them is set by the compiled plan (MetricSpec::ReadLikeLoss).
std::vector<MetricSpec> MetricsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph);

// The valid classes of the losses' targets.
std::map<std::string, ClassRange> ClassesOf(const Recipe& recipe, const Graph& graph);

// Replaces parameters and running statistics of the session with those of a safetensors file or of the folder of a checkpoint, except those
// whose names match a pattern of `except`. Optimizer state, accumulated gradients and loss scale are ignored. Notes list the names that the
// session lacks, and the parameters that the file lacks. Throws Error(kCheckpoint) if the file has none of its weights, or one of another
// shape or type; Error(kConfig) for a pattern that matches no tensor of the file.
void LoadWeights(Session& session, const std::string& path, const std::vector<std::string>& except, std::vector<std::string>& notes);

}  // namespace gradloom

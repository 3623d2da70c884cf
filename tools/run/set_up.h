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
#include "tools/run/train/initial_weights.h"

namespace gradloom {

struct TrainingSetUp {
  std::string model_path;
  std::shared_ptr<const Plan> plan;  // has steps and evaluations for every batch size that the data needs
  TrainingData data;
  std::string loss;        // the first loss in the syntax of --loss, possibly guessed
  TrainerOptions options;  // without callbacks
  // Whether a save that is due while another is being written may be left out: checkpoint.every is "auto".
  bool may_skip_saves = false;
  CompileReport report;
  std::vector<std::string> notes;  // for the screen, one line each: guesses, and values that flags override
  double compile_seconds = 0;
  bool has_rate = true;  // a learning rate, which a training algorithm of the file keeps to itself
  // Values that were derived from the model or this machine. A run stores them with its configuration, because a resumed run must not
  // depend on them.
  std::map<std::string, std::string> decided;
  std::set<std::string> frozen;  // the weights that come from a FrozenSource, by name
};

// Applies --micro-batch to the configuration (ApplyMicroBatch). `planned`: the plan that model.plan names, if it has already been read.
// `frozen`: where frozen weights come from, if not from the model; a plan has its own. Throws Error of any class that names the model, the
// data or a key.
TrainingSetUp SetUpTraining(Configuration& configuration, std::optional<RecipePlan> planned = std::nullopt,
                            const FrozenSource* frozen = nullptr);

}  // namespace gradloom

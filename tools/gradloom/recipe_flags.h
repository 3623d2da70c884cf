// The flags that say how a model is trained, and the Recipe they make. train, check and compile share them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/recipe.h"

namespace CLI {
class App;
}

namespace gradloom {

struct RecipeFlags {
  std::string model;
  std::vector<std::string> losses;
  std::string optimizer = "adam";
  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0;
  double clip_norm = 0;
  std::string schedule = "constant";
  std::string warmup;
  int64_t batch = 0;
  int64_t accumulate = 1;
  std::vector<std::string> freeze, trainable, shapes, disabled_passes;
  std::string mode = "train";
  std::string devices = "cpu";
  int threads = 0;
  std::string dump_after, stop_after;
  bool time_passes = false;

  void Declare(CLI::App& app);

  // Fills what the flags leave open from the graph's outputs: a loss is guessed from the shape of the first
  // one. `total_steps`: for schedules that end; 0: not known. `notes` gets what was guessed.
  Recipe ToRecipe(const Graph& graph, int64_t total_steps, std::vector<std::string>& notes) const;

  // `total_steps`: updates of the whole run, 0 where not known.
  Schedule ToSchedule(int64_t total_steps) const;
  ImportOptions ToImportOptions() const;
  PassControl ToPassControl() const;
};

// "cross_entropy(logits, label, label_smoothing=0.1)*0.5" -> a term; the operands may be left out.
// Throws Error(kConfig) with a did-you-mean.
LossTerm ParseLoss(const std::string& text);

}  // namespace gradloom

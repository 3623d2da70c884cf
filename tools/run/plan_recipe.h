// The recipe that a plan was compiled from, stored in the plan so that a run can start from the plan alone (--plan).
#pragma once

#include <string>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Stores the keys that the plan was compiled from in its properties.
void KeepRecipe(const Configuration& configuration, Plan& plan);

// A plan that replaces compilation: it contains the model with its initial weights.
class RecipePlan {
 public:
  // Reads and verifies the file. Throws Error(kIo, kPlan), the latter also for a plan without a recipe, and for a recipe with other keys
  // than KeepRecipe stores.
  explicit RecipePlan(const std::string& path);

  // The recipe as TOML text.
  const std::string& recipe_text() const;

  // Throws Error(kPlan) if model.path is set and names another model than the plan's.
  void CheckModel(const Configuration& configuration) const;

  // The path of the plan, which a run uses as the name of its model.
  const std::string& path() const { return path_; }
  Model model() const;

  // The plan with the entries of `options` that it lacks, and with this schedule; `report` is filled as by a compilation. Throws
  // Error(kPlan) if a key of `configuration` differs from the plan's recipe, and as AddEntry.
  Plan Complete(const Configuration& configuration, const Model& model, CompileOptions options, CompileReport& report) const;

 private:
  std::string path_;
  double proof_ms_ = 0;  // of the plan as read; added entries are verified when they are added
  Plan plan_;
};

}  // namespace gradloom

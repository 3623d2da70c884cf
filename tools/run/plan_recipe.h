// What a plan was compiled from, kept in it, so that a run can begin from the plan alone (--plan).
#pragma once

#include <string>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Keeps the keys that the plan was compiled from among its properties.
void KeepRecipe(const Configuration& configuration, Plan& plan);

// Those keys as a TOML text. Throws Error(kIo, kPlan), the latter also for a plan that does not say them.
std::string RecipeTextOf(const std::string& path);

// A plan in place of one that is compiled: the model in it with its first weights, and the plan itself.
class RecipePlan {
 public:
  // Reads and proves the file of model.plan. Throws Error(kIo, kPlan), the latter also where model.path is another model's.
  explicit RecipePlan(const Configuration& configuration);

  // The file's name, as the model of a run is called.
  const std::string& path() const { return path_; }
  Model model() const;

  // The plan with the entries of `options` that it lacks, and this schedule; `report` gets what a compilation reports. Throws Error(kPlan)
  // where a key of `configuration` says something else than the plan was compiled from, and as AddEntry.
  Plan Complete(const Configuration& configuration, const Model& model, CompileOptions options, CompileReport& report) const;

 private:
  std::string path_;
  double proof_ms_ = 0;  // of what was read; entries that are added are proved as they are
  Plan plan_;
};

}  // namespace gradloom

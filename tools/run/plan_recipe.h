// What a plan was compiled from, kept in it, so that a run can begin from the plan alone (--plan).
#pragma once

#include <string>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Keeps the keys that the plan was compiled from among its properties.
void KeepRecipe(const Configuration& configuration, Plan& plan);

// A plan in place of one that is compiled: the model in it with its first weights, and the plan itself.
class RecipePlan {
 public:
  // Reads and proves the file. Throws Error(kIo, kPlan), the latter also for a plan that does not say what it was compiled from.
  explicit RecipePlan(const std::string& path);

  // What it was compiled from, as a TOML text.
  const std::string& recipe_text() const;

  // Throws Error(kPlan) where model.path is given and another model than the plan's.
  void CheckModel(const Configuration& configuration) const;

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

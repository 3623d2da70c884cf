// gradloom train: compile a model and train it.
#include <CLI/CLI.hpp>

#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/training_run.h"

namespace gradloom {

Action DeclareTrain(CLI::App& app) {
  ConfigurationFlags flags;
  flags.Declare(app, kUseRecipe | kUseData | kUseRun);
  return [flags] { return Train(flags.Resolve()); };
}

}  // namespace gradloom

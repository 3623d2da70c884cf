// gradloom train and resume.
#include <CLI/CLI.hpp>

#include "runtime/base/error.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/run_folder.h"
#include "tools/run/training_run.h"

namespace gradloom {
namespace {

// What decides where a run begins.
constexpr std::string_view kFixed[] = {"run.name", "run.out", "model.init_weights", "train.dry_run"};

std::string ValueText(const Configuration& configuration, const Key& key) {
  return configuration.has_value(key.name) ? TomlOf(key, configuration.value(key.name)) : "nothing";
}

// One line for each key whose value is no longer that of the run.
std::vector<std::string> Changes(const Configuration& run, const Configuration& now) {
  std::vector<std::string> changes;
  for (const Key& key : Keys()) {
    const std::string before = ValueText(run, key), after = ValueText(now, key);
    if (before == after) continue;
    if (std::find(std::begin(kFixed), std::end(kFixed), key.name) != std::end(kFixed)) {
      throw Error(ErrorCode::kConfig, std::string(key.flag) + " cannot be changed in a run that is there", now.origin(key.name).ToString(),
                  "train a new run with it");
    }
    changes.push_back(std::string(key.name) + " = " + after + ", was " + before);
  }
  return changes;
}

}  // namespace

Action DeclareTrain(CLI::App& app) {
  ConfigurationFlags flags;
  flags.Declare(app, kUseRecipe | kUseData | kUseRun);
  return [flags] { return Train(flags.Resolve()); };
}

Action DeclareResume(CLI::App& app) {
  auto options = std::make_shared<ResumeOptions>();
  ConfigurationFlags flags;
  app.add_option("run", options->run, "the folder of a run")->required();
  app.add_option("--from", options->from, "a checkpoint of the run (step-000500), best, or start; default: the newest that loads");
  flags.Declare(app, kUseRecipe | kUseData | kUseRun, false);
  return [flags, options] {
    const std::string path = RunFolder::Open(options->run).ConfigPath();
    Configuration run;
    run.ReadFile(path);
    const Configuration configuration = flags.Resolve(path);
    options->changed = Changes(run, configuration);
    return Resume(configuration, *options);
  };
}

}  // namespace gradloom

// A training run from its configuration to its folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/configuration.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/training_job.h"

namespace gradloom {

// Sets up, trains and writes the folder of the run. The exit code: 0, also where a lack of progress ended it early; 130
// where SIGINT and 138 where SIGTERM, SIGUSR1 or SIGHUP stopped it, all of it saved.
// `json`: one line at the end on stdout, as log.report says. `job`: that this process is in; rank 0 alone writes and shows.
// `planned`: what model.plan names, where it is read already.
int Train(const Configuration& configuration, bool json, const std::shared_ptr<TrainingJob>& job,
          std::optional<RecipePlan> planned = std::nullopt);

struct ResumeOptions {
  std::string run;                   // the folder
  std::string from;                  // a checkpoint, "best" or "start"; empty: the newest that loads
  std::vector<std::string> changed;  // in the configuration since the run was made, one line each
};

// Goes on with a run, to the same bits unless something was changed. The exit code as Train's.
int Resume(const Configuration& configuration, const ResumeOptions& options, bool json, const std::shared_ptr<TrainingJob>& job);

}  // namespace gradloom

// Runs a training from its configuration to its folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/configuration.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/train/resume_checks.h"
#include "tools/run/train/training_job.h"

namespace gradloom {

// Sets up, trains, and writes the folder of the run. Returns the exit code: 0, also for early stopping; 130 if SIGINT and 138 if SIGTERM,
// SIGUSR1 or SIGHUP stopped it, with everything saved. `json`: prints one line at the end on stdout, like log.report. `job`: the job of
// this process; only rank 0 writes and prints. `planned`: the plan that model.plan names, if it has already been read.
int Train(const Configuration& configuration, bool json, const std::shared_ptr<TrainingJob>& job,
          std::optional<RecipePlan> planned = std::nullopt);

struct ResumeOptions {
  std::string run;                  // the folder
  std::string from;                 // a checkpoint, "best" or "start"; empty: the newest that can be loaded
  std::vector<ChangedKey> changed;  // since the run was created
};

// Resumes a run, with the same bits unless something was changed. Returns the exit code as Train.
int Resume(const Configuration& configuration, const ResumeOptions& options, bool json, const std::shared_ptr<TrainingJob>& job);

}  // namespace gradloom

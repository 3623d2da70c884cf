// gradloom train and resume.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "runtime/base/error.h"
#include "runtime/plan/device_spec.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/options/micro_batch.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/options/optimizer_options.h"
#include "tools/run/plan_recipe.h"
#include "tools/run/train/job.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/training_job.h"
#include "tools/run/train/training_run.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

// Keys that determine where a run begins.
constexpr std::string_view kFixed[] = {"run.name", "run.out", "model.init_weights", "model.init_except", "train.dry_run"};
// Keys that affect how the command works, but not the run.
constexpr std::string_view kOfTheCommand[] = {"run.resume",       "log.report",  "log.report_every",    "log.progress",
                                              "log.format",       "log.file",    "log.metrics_port",    "log.metrics_address",
                                              "log.trace_format", "train.chaos", "train.deterministic", "train.check_numerics"};

bool IsAmong(const Key& key, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), key.name) != names.end();
}

// The keys whose value differs from that of the run.
std::vector<ChangedKey> Changes(const Configuration& run, const Configuration& now) {
  std::vector<ChangedKey> changes;
  for (const Key& key : Keys()) {
    const std::string before = ValueText(run, key), after = ValueText(now, key);
    if (before == after || IsAmong(key, kOfTheCommand) || (key.uses & kUseJob) != 0) continue;
    if (IsAmong(key, kFixed)) {
      throw Error(ErrorCode::kConfig, std::string(key.flag) + " cannot be changed in an existing run", now.origin(key.name).ToString(),
                  "omit it, or start a new run with it");
    }
    // Zero stands for what the model, the data or this machine decides.
    const bool set = before != "0" || before != key.fallback;
    changes.push_back({&key, std::string(key.name) + " = " + after + ", was " + (set ? before : "not set")});
  }
  return changes;
}

int CountOfDevices(const Configuration& configuration) { return std::max(ParseDevices(configuration.Text("devices.use")).count, 1); }

// The absolute path, without a slash at its end.
std::filesystem::path PlainPath(const std::string& path) {
  const std::filesystem::path plain = std::filesystem::absolute(path).lexically_normal();
  return plain.has_filename() ? plain : plain.parent_path();
}

// Sets name and place of a run by its folder, which may have been renamed or moved since it was made. Flags that say something else stay.
void NameByFolder(const std::string& folder, Configuration& configuration) {
  const std::filesystem::path path = PlainPath(folder), out = path.parent_path();
  const auto by_flag = [&](const char* key) { return configuration.origin(key).kind > OriginKind::kFile; };
  if (!by_flag("run.name")) configuration.Decide("run.name", path.filename().string(), folder);
  if (!by_flag("run.out") || PlainPath(configuration.Text("run.out")) == out) configuration.Decide("run.out", out.string(), folder);
}

// The configuration as the run would store it. It stores what its processes have together and what a device processes at once, but flags
// say what each process has and how its batches are divided, and may choose another optimizer than a file, whose options are dropped; the
// same flags again change nothing.
Configuration AsStored(Configuration configuration, const TrainingJob& job) {
  job.CheckConfiguration(configuration, true);
  job.ShareDevices(configuration, true);
  if (configuration.origin("devices.target").place == kJobOrigin) configuration.Reset("devices.target");
  DropUnfitPlacement(configuration);
  ApplyMicroBatch(configuration);
  DropOptionsOfOthers(configuration);
  return configuration;
}

// Resumes with the configuration of the run, overridden by the command line.
int ResumeRun(const ConfigurationFlags& flags, ResumeOptions options, bool json, const std::shared_ptr<TrainingJob>& job) {
  const std::string path = RunFolder::Open(options.run).ConfigPath();
  Configuration run;
  run.ReadFile(path);
  NameByFolder(options.run, run);
  Configuration configuration = flags.Resolve(path);
  NameByFolder(options.run, configuration);
  // The threads per device depended on the number of devices. Each process of a job counts its own devices.
  const bool of_the_run = configuration.origin("devices.threads").kind == OriginKind::kFile;
  if (job->alone() && of_the_run && CountOfDevices(configuration) != CountOfDevices(run))
    configuration.Decide("devices.threads", "0", "the changed --devices");
  options.changed = Changes(run, AsStored(configuration, *job));
  return Resume(configuration, options, json, job);
}

// What --resume refers to, whether or not there is a run; nullopt: nothing.
std::optional<ResumeOptions> NamedToResume(const Configuration& configuration) {
  namespace fs = std::filesystem;
  const std::string& resume = configuration.Text("run.resume");
  if (resume == "never") return std::nullopt;
  if (resume == "auto") {
    const std::string& name = configuration.Text("run.name");
    if (name.empty()) throw Error(ErrorCode::kConfig, "--resume auto needs the name of the run", "--resume", "add --name exp1");
    return ResumeOptions{.run = (fs::path(configuration.Text("run.out")) / name).string()};
  }
  // runs/exp1/checkpoints/step-000100
  const fs::path path = fs::path(resume).lexically_normal();
  const fs::path run = path.parent_path().parent_path();
  if (!RunFolder::IsRun(resume) && RunFolder::IsRun(run.string())) {
    return ResumeOptions{.run = run.string(), .from = path.filename().string()};
  }
  return ResumeOptions{.run = resume};
}

// The run that --resume refers to; nullopt: a new one. In a job, rank 0 checks whether the run exists before it creates one.
std::optional<ResumeOptions> RunToResume(const Configuration& configuration, const TrainingJob& job) {
  std::optional<ResumeOptions> named = NamedToResume(configuration);
  if (!named || configuration.Text("run.resume") != "auto") return named;
  return job.BroadcastText(RunFolder::IsRun(named->run) ? "resume" : "train") == "train" ? std::nullopt : named;
}

// Errors from here on are reported as the configuration says, which may not be by a flag.
void TakeReport(const Configuration& configuration, const std::string& log_file = "") {
  if (configuration.Text("log.report") == "json") ReportErrorsAsJson();
  SetStderrLines(configuration.Text("log.format") == "json", log_file);
}

// Errors in the configuration itself are reported as the rest of it says.
Configuration Resolved(const ConfigurationFlags& flags, const std::string& base = "") {
  try {
    return flags.Resolve(base);
  } catch (const Error&) {
    const Configuration readable = flags.Readable(base);
    TakeReport(readable);
    try {
      TakeReport(readable, readable.Text("log.file"));
    } catch (const Error&) {  // the first error counts
    }
    throw;
  }
}

// The configuration of a new run; if it trains from a plan, on top of the plan's recipe.
Configuration ResolveNew(const ConfigurationFlags& flags, std::optional<RecipePlan>& planned) {
  const Configuration configuration = Resolved(flags);
  TakeReport(configuration);
  const std::string& plan = configuration.Text("model.plan");
  if (plan.empty()) return configuration;
  planned.emplace(plan);
  return flags.ResolveOver(planned->recipe_text(), Escaped(plan, 4096));
}

// Must come first in a command: determines this process's rank in its job before it waits for others. `shown`: says how lines are written
// from the first one on.
std::shared_ptr<TrainingJob> JoinJob(const Configuration& configuration, const Configuration& shown) {
  TakeReport(shown);
  return TrainingJob::Join(configuration, [&](const JobTopology& topology) {
    const bool leads = topology.rank == 0;
    SetStderrLines(shown.Text("log.format") == "json", leads ? shown.Text("log.file") : "");
    for (const std::string& line : LinesOf(topology)) {
      if (leads) LogToStderr(line);
    }
  });
}

}  // namespace

Action DeclareTrain(CLI::App& app) {
  ConfigurationFlags flags;
  auto json = std::make_shared<bool>(false);
  flags.Declare(app, kUseRecipe | kUseData | kUseRun | kUseJob);
  app.add_flag("--json", *json, "print one JSON object at the end, as --report json does");
  return [flags, json] {
    std::optional<RecipePlan> planned;
    const Configuration configuration = ResolveNew(flags, planned);
    // A run that is resumed writes lines as it did before.
    const std::optional<ResumeOptions> named = NamedToResume(configuration);
    const bool exists = named && RunFolder::IsRun(named->run);
    const std::shared_ptr<TrainingJob> job =
        JoinJob(configuration, exists ? flags.Resolve(RunFolder::Open(named->run).ConfigPath()) : configuration);
    return job->Guard([&] {
      const std::optional<ResumeOptions> resumed = RunToResume(configuration, *job);
      return resumed ? ResumeRun(flags, *resumed, *json, job) : Train(configuration, *json, job, std::move(planned));
    });
  };
}

Action DeclareResume(CLI::App& app) {
  auto options = std::make_shared<ResumeOptions>();
  auto json = std::make_shared<bool>(false);
  ConfigurationFlags flags;
  app.add_option("run", options->run, "the folder of a run")->required();
  app.add_option("--from", options->from, "a checkpoint of the run (step-000500), best, or start; default: the newest that loads");
  flags.Declare(app, kUseRecipe | kUseData | kUseRun | kUseJob, false);
  app.add_flag("--json", *json, "print one JSON object at the end, as --report json does");
  return [flags, options, json] {
    const Configuration configuration = Resolved(flags, RunFolder::Open(options->run).ConfigPath());
    const std::shared_ptr<TrainingJob> job = JoinJob(configuration, configuration);
    return job->Guard([&] { return ResumeRun(flags, *options, *json, job); });
  };
}

}  // namespace gradloom

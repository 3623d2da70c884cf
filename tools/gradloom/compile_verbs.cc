// gradloom check and compile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "compiler/compile.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/schedule.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/device_forecast.h"
#include "tools/run/memory_limit.h"
#include "tools/run/obstacles.h"
#include "tools/run/recipe.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

struct Compiled {
  Plan plan;
  CompileReport report;
  std::vector<std::string> notes;
};

// Stands for a number of steps that nobody has said, where it does not matter.
constexpr int64_t kSomeSteps = 1000;

// `only_check`: the plan is not kept.
Compiled CompileModel(const Configuration& configuration, bool only_check) {
  const Model model = Model::Load(ModelPathOf(configuration), LoadOptionsOf(configuration));
  Compiled made;
  CompileOptions options;
  options.import = ImportOptionsOf(configuration);
  options.control = PassControlOf(configuration);
  // A symbolic batch needs some size; any shows what stands in the way.
  if (options.import.batch == 0) options.import.batch = 32;
  const int64_t steps = configuration.Integer("train.steps");
  const ImportedGraph probe = Import(model, options.import);
  options.recipe = RecipeOf(configuration, model, *probe.graph, steps > 0 || !only_check ? steps : kSomeSteps, made.notes);
  const int64_t batch = probe.batch;
  options.entries = {{EntryKind::kStep, batch}};
  if (!only_check) {
    CheckSchedule(options.recipe.schedule);
    options.entries.push_back({EntryKind::kEval, batch});
    options.entries.push_back({EntryKind::kPredict, batch});
  }
  made.plan = Compile(model, options, &made.report);
  CheckMemoryLimit(configuration, model, options, made.plan);
  if (const std::string line = RecomputedLine(made.report); !line.empty()) made.notes.push_back(line);
  if (!only_check) AddForecast(model, options, made.plan, made.report, made.notes);
  return made;
}

Compiled CompileConfigured(const Configuration& configuration, bool only_check) {
  Compiled made;
  NamingAllObstacles(configuration, [&] { made = CompileModel(configuration, only_check); });
  return made;
}

nlohmann::json Reasons(const std::vector<CompileReport::Reason>& list) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [name, reason] : list) json.push_back({{"name", name}, {"reason", reason}});
  return json;
}

// More than a screen of them tell little: --json lists all.
constexpr size_t kMostShown = 100;

void PrintReasons(const char* what, const std::vector<CompileReport::Reason>& list) {
  for (size_t i = 0; i < std::min(list.size(), kMostShown); ++i) {
    const auto& [name, reason] = list[i];
    std::printf("%-8s %s   (%s)\n", what, Escaped(name).c_str(), reason.c_str());
  }
  if (list.size() > kMostShown) std::printf("%-8s and %zu more   (--json lists all)\n", what, list.size() - kMostShown);
}

int Check(const Configuration& configuration, bool json) {
  const Compiled made = CompileConfigured(configuration, true);
  const Program& program = made.plan.programs.front();
  if (json) {
    const nlohmann::json line{{"model", ModelPathOf(configuration)},      {"trained", Reasons(made.report.trained)},
                              {"frozen", Reasons(made.report.frozen)},    {"parameters_trained", made.report.trained_elements},
                              {"step_flops", made.report.step_flops},     {"transient_bytes", made.report.transient_bytes},
                              {"state_bytes", MostStateBytes(made.plan)}, {"instructions", program.instructions.size()}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  for (const std::string& note : made.notes) std::printf("%s\n", note.c_str());
  for (const std::string& warning : made.report.warnings) std::printf("warning %s\n", warning.c_str());
  PrintReasons("trained", made.report.trained);
  PrintReasons("frozen", made.report.frozen);
  std::printf("%s parameters trained   %s FLOPs a step   %zu instructions   %s activations + %s weights and optimizer   sound\n",
              WithCommas(made.report.trained_elements).c_str(), Short(made.report.step_flops).c_str(), program.instructions.size(),
              Bytes(made.report.transient_bytes).c_str(), Bytes(MostStateBytes(made.plan)).c_str());
  return 0;
}

int CompileToFile(const Configuration& configuration, const std::string& out, bool json) {
  const Compiled made = CompileConfigured(configuration, false);
  WritePlan(made.plan, out);
  for (const std::string& note : made.notes) std::fprintf(stderr, "%s\n", note.c_str());
  const CompileReport& report = made.report;
  const double all_ms = report.import_ms + report.passes_ms + report.verify_ms;
  std::fprintf(stderr, "plan %s -> %s   import %.1f ms, passes %.1f ms, proof %.1f ms (%.1f %%)\n",
               PlanHash(made.plan).substr(0, 8).c_str(), out.c_str(), report.import_ms, report.passes_ms, report.verify_ms,
               all_ms > 0 ? 100 * report.verify_ms / all_ms : 0);
  std::fprintf(stderr, "arena %s, and no placement of its values needs less than %s", Bytes(report.transient_bytes).c_str(),
               Bytes(report.live_bytes_bound).c_str());
  if (report.waits > 0) {
    std::fprintf(stderr, "   %lld waits for events, and no choice needs fewer than %lld", static_cast<long long>(report.waits),
                 static_cast<long long>(report.waits_bound));
  }
  std::fprintf(stderr, "\n");
  if (json) {
    const nlohmann::json line{{"plan", PlanHash(made.plan)},
                              {"output", out},
                              {"import_ms", made.report.import_ms},
                              {"passes_ms", made.report.passes_ms},
                              {"verify_ms", made.report.verify_ms},
                              {"transient_bytes", made.report.transient_bytes},
                              {"live_bytes_bound", made.report.live_bytes_bound},
                              {"waits", made.report.waits},
                              {"waits_bound", made.report.waits_bound},
                              {"state_bytes", MostStateBytes(made.plan)}};
    std::printf("%s\n", line.dump().c_str());
  }
  return 0;
}

}  // namespace

Action DeclareCheck(CLI::App& app) {
  ConfigurationFlags flags;
  auto json = std::make_shared<bool>(false);
  flags.Declare(app, kUseRecipe | kUsePlan);
  app.add_flag("--json", *json, "print one JSON object");
  return [flags, json] { return Check(flags.Resolve(), *json); };
}

Action DeclareCompile(CLI::App& app) {
  ConfigurationFlags flags;
  auto out = std::make_shared<std::string>();
  flags.Declare(app, kUseRecipe | kUsePlan);
  app.add_option("-o,--output", *out, "the plan file to write")->required();
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON object");
  return [flags, out, json] { return CompileToFile(flags.Resolve(), *out, *json); };
}

}  // namespace gradloom

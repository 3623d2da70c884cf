// gradloom check and compile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/compile_model.h"
#include "tools/run/obstacles.h"
#include "tools/run/recipe.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

// `only_check`: the plan is not kept.
CompiledModel CompileConfigured(const Configuration& configuration, bool only_check, bool gradients = false) {
  CompiledModel made;
  NamingAllObstacles(configuration, [&] {
    const Model model = Model::Load(ModelPathOf(configuration), LoadOptionsOf(configuration));
    made = CompileModel(configuration, model, {.only_check = only_check, .gradients = gradients});
  });
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
  const CompiledModel made = CompileConfigured(configuration, true);
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

int CompileToFile(const Configuration& configuration, const std::string& out, bool gradients, bool json) {
  const CompiledModel made = CompileConfigured(configuration, false, gradients);
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
  auto gradients = std::make_shared<bool>(false);
  app.add_flag("--gradients", *gradients, "gradients and update apart, too: what TrainStep and OptimizerStep of the C interface run");
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON object");
  return [flags, out, gradients, json] { return CompileToFile(flags.Resolve(), *out, *gradients, *json); };
}

}  // namespace gradloom

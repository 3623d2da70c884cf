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
#include "tools/run/options/described_cluster.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/model_options.h"
#include "tools/run/outputs.h"
#include "tools/run/set_up.h"
#include "tools/run/views/obstacles.h"
#include "tools/run/views/plan_pages.h"
#include "tools/run/views/teacher_note.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

CompiledModel CompileConfigured(const Configuration& configuration, const EntryRequests& requests) {
  PrintSetKeys(configuration);
  CompiledModel made;
  ReportingAllObstacles(configuration, [&] {
    const Model model = Model::Load(ModelPathOf(configuration), LoadOptionsOf(configuration));
    made = CompileModel(configuration, model, requests);
  });
  return made;
}

// With --stop-after there is no plan, only what the passes print.
bool StopsEarly(const Configuration& configuration) { return !configuration.Text("compiler.stop_after").empty(); }
int StopEarly(const Configuration& configuration, const EntryRequests& requests, bool json) {
  PrintSetKeys(configuration);
  ReportingAllObstacles(configuration, [&] {
    const Model model = Model::Load(ModelPathOf(configuration), LoadOptionsOf(configuration));
    ShowPasses(configuration, model, requests);
  });
  const std::string& last = configuration.Text("compiler.stop_after");
  if (json) std::printf("%s\n", JsonLine({{"model", ModelPathOf(configuration)}, {"stopped_after", last}}).c_str());
  LogToStderr("stopped after " + last + ": no plan is made");
  return 0;
}

nlohmann::json Reasons(const std::vector<CompileReport::Reason>& list) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [name, reason, rates] : list) {
    json.push_back({{"name", name}, {"reason", reason}});
    if (rates) json.back().update({{"lr_scale", rates->lr_scale}, {"weight_decay", rates->weight_decay}});
  }
  return json;
}

// `scales`, `decays`: whether any of the weights has a factor of the learning rate, or decays.
std::string RatesText(const UpdateRates& rates, bool scales, bool decays) {
  std::string text;
  if (scales) text += "   lr x " + Short(rates.lr_scale);
  if (decays) text += "   decay " + Short(rates.weight_decay);
  return text;
}

// Longer lists are shortened to about a screen; --json lists everything.
constexpr size_t kMaxShown = 100;

void PrintReasons(const char* what, const std::vector<CompileReport::Reason>& list) {
  const auto any = [&](auto has) {
    return std::any_of(list.begin(), list.end(), [&](const auto& of) { return of.rates && has(*of.rates); });
  };
  const bool scales = any([](const UpdateRates& rates) { return rates.lr_scale != 1; });
  const bool decays = any([](const UpdateRates& rates) { return rates.weight_decay != 0; });
  for (size_t i = 0; i < std::min(list.size(), kMaxShown); ++i) {
    const auto& [name, reason, rates] = list[i];
    const std::string shown = rates ? RatesText(*rates, scales, decays) : "";
    std::printf("%-8s %s%s   (%s)\n", what, Escaped(name).c_str(), shown.c_str(), reason.c_str());
  }
  if (list.size() > kMaxShown) std::printf("%-8s and %zu more   (--json lists all)\n", what, list.size() - kMaxShown);
}

struct CompileFlags {
  std::string out;
  PlanPages pages;
  EntryRequests requests;
  bool json = false;
};

// Compiles what a run with this data would start with.
CompiledModel SetUpWithData(Configuration configuration, nlohmann::json& data) {
  PrintSetKeys(configuration);
  TrainingSetUp made = SetUpTraining(configuration);
  data = {{"path", configuration.Text("data.train")},
          {"rows", made.data.train.rows()},
          {"eval_rows", made.data.eval.rows()},
          {"batches", BatchSizes(made.data.train.rows(), made.options.batch)}};
  CompiledModel compiled;
  compiled.plan = *made.plan;
  compiled.report = std::move(made.report);
  compiled.notes = std::move(made.notes);
  return compiled;
}

// The instructions of the first entry, on all devices together.
size_t InstructionsOf(const Plan& plan) {
  size_t instructions = 0;
  for (const RankBinding& rank : plan.entries.front().ranks)
    instructions += plan.programs[static_cast<size_t>(rank.program)].instructions.size();
  return instructions;
}

int Check(const Configuration& configuration, bool json) {
  if (StopsEarly(configuration)) return StopEarly(configuration, {.only_check = true}, json);
  nlohmann::json data;
  const CompiledModel made = configuration.Text("data.train").empty() ? CompileConfigured(configuration, {.only_check = true})
                                                                      : SetUpWithData(configuration, data);
  if (made.report.trained_elements == 0) {
    if (!json) PrintReasons("frozen", made.report.frozen);
    RefuseNothingToTrain(made.report, ModelPathOf(configuration));
  }
  if (json) {
    nlohmann::json line{{"model", ModelPathOf(configuration)},      {"trained", Reasons(made.report.trained)},
                        {"frozen", Reasons(made.report.frozen)},    {"parameters_trained", made.report.trained_elements},
                        {"step_flops", made.report.step_flops},     {"transient_bytes", made.report.transient_bytes},
                        {"state_bytes", MostStateBytes(made.plan)}, {"instructions", InstructionsOf(made.plan)}};
    if (!data.is_null()) line["data"] = data;
    std::printf("%s\n", JsonLine(line).c_str());
    return 0;
  }
  for (const std::string& note : made.notes) std::printf("%s\n", note.c_str());
  if (const std::string note = TeacherNote(made.report.trained); !note.empty()) std::printf("%s\n", note.c_str());
  for (const std::string& warning : made.report.warnings) std::printf("warning %s\n", warning.c_str());
  PrintReasons("trained", made.report.trained);
  PrintReasons("frozen", made.report.frozen);
  if (!data.is_null()) {
    const nlohmann::json& sizes = data["batches"];
    std::printf("%-8s %s   %s train, %s eval, batches of %lld%s\n", "data", Escaped(configuration.Text("data.train"), 4096).c_str(),
                WithCommas(data["rows"].get<int64_t>()).c_str(), WithCommas(data["eval_rows"].get<int64_t>()).c_str(),
                static_cast<long long>(sizes[0].get<int64_t>()),
                sizes.size() > 1 ? (", the last of " + std::to_string(sizes[1].get<int64_t>())).c_str() : "");
  }
  std::printf("%s parameters trained   %s FLOPs a step   %zu instructions   %s activations + %s weights and optimizer   sound\n",
              WithCommas(made.report.trained_elements).c_str(), Short(made.report.step_flops).c_str(), InstructionsOf(made.plan),
              Bytes(made.report.transient_bytes).c_str(), Bytes(MostStateBytes(made.plan)).c_str());
  return 0;
}

int CompileToFile(const Configuration& configuration, const CompileFlags& flags) {
  const auto& [out, pages, requests, json] = flags;
  if (StopsEarly(configuration)) return StopEarly(configuration, requests, json);
  CheckCanWrite(out);
  const CompiledModel made = CompileConfigured(configuration, requests);
  WritePlan(made.plan, out);
  if (!pages.empty())
    WritePages(made.plan, pages, DescribedCluster(configuration.Text("devices.topology"), made.plan.targets.front().device));
  for (const std::string& note : made.notes) LogToStderr(note);
  const CompileReport& report = made.report;
  for (const std::string& warning : report.warnings) LogToStderr("warning " + warning);
  LogToStderr("plan " + PlanHash(made.plan).substr(0, 8) + " -> " + Escaped(out, 4096) + "   " + CompileTimes(report));
  std::string arena =
      "arena " + Bytes(report.transient_bytes) + ", and no placement of its values needs less than " + Bytes(report.live_bytes_bound);
  if (report.waits > 0) {
    arena +=
        "   " + std::to_string(report.waits) + " waits for events, and no choice needs fewer than " + std::to_string(report.waits_bound);
  }
  LogToStderr(arena);
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
                              {"warnings", made.report.warnings},
                              {"state_bytes", MostStateBytes(made.plan)}};
    std::printf("%s\n", JsonLine(line).c_str());
  }
  return 0;
}

}  // namespace

Action DeclareCheck(CLI::App& app) {
  ConfigurationFlags flags;
  auto json = std::make_shared<bool>(false);
  flags.Declare(app, kUseRecipe | kUsePlan | kUseData);
  app.add_flag("--json", *json, "print one JSON object");
  return [flags, json] { return Check(flags.Resolve(), *json); };
}

Action DeclareCompile(CLI::App& app) {
  ConfigurationFlags flags;
  auto wanted = std::make_shared<CompileFlags>();
  flags.Declare(app, kUseRecipe | kUsePlan);
  app.add_option("-o,--output", wanted->out, "the plan file to write")->required();
  app.add_option("--emit-onnx", wanted->pages.onnx, "also write the schedule as an ONNX file for Netron, like inspect --onnx");
  app.add_option("--emit-dot", wanted->pages.dot, "also write the first device's program for Graphviz, like inspect --dot");
  app.add_option("--emit-html", wanted->pages.html, "also write the page of the plan, like inspect --html");
  app.add_flag("--gradients", wanted->requests.gradients,
               "also compile gradients and update separately, for TrainStep and OptimizerStep of the C interface");
  app.add_option(
         "--input-gradients", wanted->requests.input_gradients,
         "an input of which a training step also returns the gradient of the loss, as its output grad/NAME, for programs; repeatable")
      ->allow_extra_args(false)
      ->type_name("");
  app.add_flag("--json", wanted->json, "print one JSON object");
  return [flags, wanted] { return CompileToFile(flags.Resolve(), *wanted); };
}

}  // namespace gradloom

// gradloom inspect, verify and export: what can be done with a plan or a run that is there.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "compiler/onnx/export.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"
#include "runtime/session/safetensors.h"
#include "tools/gradloom/verbs.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// A plan file, or the plan of a run folder.
std::string PlanPath(const std::string& path) { return fs::is_directory(path) ? (fs::path(path) / "plan.plan").string() : path; }

int64_t InstructionsOf(const Plan& plan) {
  int64_t count = 0;
  for (const Program& program : plan.programs) count += static_cast<int64_t>(program.instructions.size());
  return count;
}

int Inspect(const std::string& path) {
  std::printf("%s", PlanText(ReadPlan(PlanPath(path))).c_str());
  return 0;
}

int Verify(const std::string& path, bool json) {
  const Plan plan = ReadPlan(PlanPath(path));
  const auto start = std::chrono::steady_clock::now();
  VerifyOrThrow(plan);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (json) {
    const nlohmann::json line{
        {"plan", PlanHash(plan)}, {"sound", true}, {"programs", plan.programs.size()}, {"instructions", InstructionsOf(plan)}, {"ms", ms}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("plan %s is sound: %zu programs, %s instructions, proved in %.1f ms\n", PlanHash(plan).substr(0, 8).c_str(),
              plan.programs.size(), WithCommas(InstructionsOf(plan)).c_str(), ms);
  return 0;
}

int Export(const std::string& run, const std::string& out) {
  const Plan plan = ReadPlan(PlanPath(run));
  const SafetensorsFile state((fs::path(run) / "state.safetensors").string());
  std::map<std::string, Tensor> values;
  for (const StateTensor& tensor : plan.state) {
    if (tensor.kind == StateKind::kParameter || tensor.kind == StateKind::kStatistic) values.emplace(tensor.name, state.Read(tensor.name));
  }
  if (out.ends_with(".safetensors")) {
    WriteSafetensors(out, values);
  } else {
    ExportTrained(plan.model, values, out);
  }
  std::fprintf(stderr, "%zu tensors of %s -> %s\n", values.size(), run.c_str(), out.c_str());
  return 0;
}

}  // namespace

Action DeclareInspect(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("plan", *path, "a plan file or the folder of a run")->required();
  return [path] { return Inspect(*path); };
}

Action DeclareVerify(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  app.add_option("plan", *path, "a plan file or the folder of a run")->required();
  app.add_flag("--json", *json, "print one JSON object");
  return [path, json] { return Verify(*path, *json); };
}

Action DeclareExport(CLI::App& app) {
  auto run = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  app.add_option("run", *run, "the folder of a run")->required();
  app.add_option("-o,--output", *out, "the file to write: .onnx, or .safetensors for the weights alone")->required();
  return [run, out] { return Export(*run, *out); };
}

}  // namespace gradloom

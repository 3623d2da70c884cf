// gradloom explain and doctor.
#include <sys/statvfs.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/control_group.h"
#include "runtime/base/nearest.h"
#include "runtime/base/number_text.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"
#include "runtime/device/choose_devices.h"
#include "runtime/session/session.h"
#include "tools/gradloom/error_texts.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/records/environment.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// `exit_code`: lists only the classes with this exit code.
int ListClasses(bool json, std::optional<int> exit_code = std::nullopt) {
  nlohmann::json list = nlohmann::json::array();
  for (const ErrorText& text : ErrorTexts()) {
    if (exit_code && ExitCode(text.code) != *exit_code) continue;
    list.push_back({{"class", ErrorName(text.code)}, {"exit_code", ExitCode(text.code)}, {"meaning", text.meaning}});
    if (!json) std::printf("%-14s exit %-3d  %s\n", std::string(ErrorName(text.code)).c_str(), ExitCode(text.code), text.meaning);
  }
  if (list.empty()) {
    throw Error(ErrorCode::kConfig, "no error class has the exit code " + std::to_string(exit_code.value_or(0)), "",
                "see: gradloom explain");
  }
  if (json) std::printf("%s\n", list.dump().c_str());
  return 0;
}

int Explain(const std::string& word, bool json) {
  if (word.empty()) return ListClasses(json);
  if (const std::optional<int> exit_code = ReadNumber<int>(word)) return ListClasses(json, *exit_code);
  // Accepts "shape", "E-SHAPE" and a pasted "error[E-SHAPE]:".
  std::string name = UpperCase(word);
  if (const size_t open = name.find('['); open != std::string::npos) name = name.substr(open + 1, name.find(']') - open - 1);
  if (!name.starts_with("E-")) name = "E-" + name;
  std::vector<std::string> names;
  for (const ErrorText& text : ErrorTexts()) {
    names.emplace_back(ErrorName(text.code));
    if (names.back() != name) continue;
    if (json) {
      const nlohmann::json line{
          {"class", name}, {"exit_code", ExitCode(text.code)}, {"meaning", text.meaning}, {"causes", text.causes}, {"remedy", text.remedy}};
      std::printf("%s\n", line.dump().c_str());
      return 0;
    }
    std::printf("%s (exit %d): %s\n\noften:\n", name.c_str(), ExitCode(text.code), text.meaning);
    for (const std::string& cause : CLI::detail::split(text.causes, '\n')) {
      if (!cause.empty()) std::printf("  %s\n", cause.c_str());
    }
    std::printf("what to do:\n  %s\n", text.remedy);
    return 0;
  }
  const std::string near = Nearest(name, names);
  throw Error(ErrorCode::kConfig, "unknown error class '" + Escaped(word) + "'", "",
              near.empty() ? "gradloom explain   lists them" : DidYouMean("gradloom explain " + near));
}

enum class Verdict { kFine, kWarning, kFailed };

struct Finding {
  Verdict verdict = Verdict::kFine;
  std::string what, text;
};

int64_t FreeBytes(const char* path) {
  struct statvfs info {};
  return statvfs(path, &info) == 0 ? static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize) : -1;
}

Finding CheckThreads(const CpuDevice& cpu) {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const std::string cores = CoresText(cpu);
  if (wanted == nullptr) return {Verdict::kFine, "cpu", cpu.name + ", " + cores};
  const int threads = std::atoi(wanted);
  if (threads > cpu.cores) {
    return {Verdict::kWarning, "cpu", cores + ", but OMP_NUM_THREADS is " + std::to_string(threads) + ": threads will compete for cores"};
  }
  return {Verdict::kFine, "cpu", cpu.name + ", " + cores + ", OMP_NUM_THREADS=" + std::to_string(threads)};
}

Finding CheckMemory(const CpuDevice& cpu) {
  const int64_t limit = LimitsOfThisGroup().memory_bytes;
  std::string text = Bytes(cpu.free_bytes) + " free of " + Bytes(cpu.total_bytes);
  if (limit > 0 && limit < cpu.total_bytes) text += ", limited to " + Bytes(limit) + " by the control group";
  return {cpu.free_bytes < (int64_t{512} << 20) ? Verdict::kWarning : Verdict::kFine, "memory", text};
}

Finding CheckDisk() {
  const int64_t bytes = FreeBytes(".");
  if (bytes < 0) return {Verdict::kWarning, "disk", "the free space of the working folder is unknown"};
  return {bytes < (int64_t{1} << 30) ? Verdict::kWarning : Verdict::kFine, "disk", Bytes(bytes) + " free in the working folder"};
}

Finding CheckGpu() {
  const CudaDevices machine = ThisMachinesCuda();
  if (!machine.devices.empty()) {
    std::string names;
    bool differ = false;
    for (const DeviceProperties& device : machine.devices) {
      names += (names.empty() ? "" : ", ") + device.name;
      differ = differ || device.name != machine.devices.front().name;
    }
    const char* const order = std::getenv("CUDA_DEVICE_ORDER");
    if (!differ || (order != nullptr && std::string_view(order) == "PCI_BUS_ID")) return {Verdict::kFine, "gpu", names};
    return {Verdict::kWarning, "gpu",
            names + ": CUDA numbers them by speed, nvidia-smi by their bus; CUDA_DEVICE_ORDER=PCI_BUS_ID makes the numbers agree"};
  }
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(in, line)) return {Verdict::kFine, "gpu", "no NVIDIA driver on this machine"};
  return {Verdict::kWarning, "gpu", "an NVIDIA driver is installed (" + line + "), but training runs on the CPU: " + machine.problem};
}

// Trains the model for three steps, with these values for all elements of its input x and of the target. Returns an element of its weight
// w.
double TrainedWeight(const std::string& model, const Shape& inputs, float x, const Shape& targets, float t) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "y", .target = "t"}};
  options.recipe.optimizer.type = "sgd";
  options.recipe.schedule.lr = options.recipe.optimizer.lr = 0.1;
  options.entries = {{EntryKind::kStep, inputs[0]}};
  Session session(std::make_shared<const Plan>(Compile(Model::FromText(model), options)));
  const std::vector<float> xs(static_cast<size_t>(inputs.elements()), x), ts(static_cast<size_t>(targets.elements()), t);
  for (int i = 0; i < 3; ++i) session.Step({{"x", {DType::kFloat32, inputs, xs.data()}}, {"t", {DType::kFloat32, targets, ts.data()}}});
  return ElementAsDouble(session.Get("w").view(), 0);
}

Finding SelfTest() {
  // Computed by hand: w = 1, x = 2, t = 6, loss = (w x - t)^2, so w becomes 1 + 0.1 * 2 * 2 * 4 = 2.6, then 2.92, then 2.984.
  constexpr const char* kProduct = R"(<ir_version: 8, opset_import: ["" : 17]>
one_weight (float[1,1] x) => (float[1,1] y) <float[1,1] w = {1.0}> { y = MatMul(x, w) })";
  // Its kernels are made at run time. All weights are equal: y = 144 w x = 18 w. Of the 512 outputs 32 depend on a weight, whose gradient
  // is 2 / 512 * 32 * (y - t) x = (18 w - 18) / 64, so each step multiplies 1 - w by 1 - 0.1 * 18 / 64.
  std::string convolution = R"(<ir_version: 8, opset_import: ["" : 17]>
convolution (float[2,16,9,9] x) => (float[2,16,4,4] y) <float[16,16,3,3] w = {0.0)";
  for (int i = 1; i < 16 * 16 * 3 * 3; ++i) convolution += ", 0.0";
  convolution += "}> { y = Conv<strides = [2, 2]>(x, w) }";
  try {
    const double one = TrainedWeight(kProduct, {1, 1}, 2, {1, 1}, 6);
    if (!(std::abs(one - 2.984) < 1e-6))
      return {Verdict::kFailed, "training", "a model with one weight trained to " + NumberText(one) + ", expected 2.984"};
    const double w = TrainedWeight(convolution, {2, 16, 9, 9}, 0.125F, {2, 16, 4, 4}, 18), expected = 1 - std::pow(1 - 1.8 / 64, 3);
    if (!(std::abs(w - expected) < 1e-6))
      return {Verdict::kFailed, "training", "a convolution trained to " + NumberText(w) + ", expected " + NumberText(expected)};
  } catch (const Error& error) {
    return {Verdict::kFailed, "training", error.message() + (error.help().empty() ? "" : ": " + error.help())};
  }
  return {Verdict::kFine, "training", "a model with one weight and a convolution train to the expected values"};
}

int Doctor(bool json) {
  const CpuDevice cpu = ThisCpu();
  const Finding findings[] = {CheckThreads(cpu), CheckMemory(cpu), CheckDisk(), CheckGpu(), SelfTest()};
  int failed = 0, warnings = 0;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    const char* verdict = finding.verdict == Verdict::kFine ? "ok" : finding.verdict == Verdict::kWarning ? "warning" : "failed";
    failed += finding.verdict == Verdict::kFailed;
    warnings += finding.verdict == Verdict::kWarning;
    list.push_back({{"what", finding.what}, {"verdict", verdict}, {"text", finding.text}});
    if (!json) std::printf("%-8s %-9s %s\n", verdict, finding.what.c_str(), Escaped(finding.text, 400).c_str());
  }
  if (json) {
    std::printf("%s\n", JsonLine({{"findings", list}, {"environment", Environment()}}).c_str());
  } else {
    std::printf("%d failed, %d warnings   for a bug report: gradloom doctor --json\n", failed, warnings);
  }
  return failed > 0 ? ExitCode(ErrorCode::kCheckFailed) : 0;
}

}  // namespace

Action DeclareExplain(CLI::App& app) {
  auto word = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  app.add_option("class", *word, "a class, such as E-SHAPE, or an exit code; default: list all");
  app.add_flag("--json", *json, "print JSON");
  return [word, json] { return Explain(*word, *json); };
}

Action DeclareDoctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON object, with the environment");
  return [json] { return Doctor(*json); };
}

}  // namespace gradloom

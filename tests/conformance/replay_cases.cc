// replay_cases DIR... [--threads N] [--streams N] [--devices SPEC] [--stages N] [--place-seed SEED] [--pipeline N] [--gather-to N]
// [--shard-optimizer] [--copy-inputs] [--recompute] [--chaos SEED] [--cuda-graph on|off] [--precision fp32|tf32|bf16|fp16]
// [--gradients on|off] [--sum-order fixed|any] [--disable-pass NAME]... [--relax NAME=FACTOR]... [--out DIR]
//
// Trains each case (a folder with case.json, or a folder of such folders) through the compiler and the executor, compares the results with
// the recording, and prints a line per case:
//
//   NAME  loss 0.12  gradient 0.30  parameter 0.08  passed
//
// The figures are the largest errors relative to the tolerance. Gradients that are fetched are summed for all devices; with --gradients off
// they are not compared, and one device may get the sum. --relax multiplies that of the losses of a case: where an element is within
// rounding errors of a kink, the order of sums decides on which side the recording is. Ends with "N passed, N failed".
#include "tests/conformance/replay_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/npz.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/run_case.h"
#include "tests/conformance/training_case.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> folders;
  RunOptions run;
  std::map<std::string, double> relaxed;  // by the name of a case: the factor of its losses' tolerance
  std::string out;
};

constexpr char kUsage[] =
    "replay_cases DIR... [--threads N] [--streams N] [--devices SPEC] [--stages N] [--place-seed SEED] [--pipeline N] [--gather-to N] "
    "[--shard-optimizer] [--copy-inputs] [--recompute] [--chaos SEED] [--cuda-graph on|off] [--precision fp32|tf32|bf16|fp16] "
    "[--gradients on|off] [--sum-order fixed|any] [--disable-pass NAME]... [--relax NAME=FACTOR]... [--out DIR]";

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  const auto value = [&](int& i) -> std::string {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals != std::string::npos) return word.substr(equals + 1);
    if (i + 1 >= argc) throw Error(ErrorCode::kConfig, word + " needs a value");
    return argv[++i];
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    if (flag == "--disable-pass") {
      arguments.run.disabled_passes.emplace_back(value(i));
    } else if (flag == "--threads") {
      arguments.run.threads = std::atoi(value(i).c_str());
    } else if (flag == "--streams") {
      arguments.run.streams = std::atoi(value(i).c_str());
    } else if (flag == "--chaos") {
      arguments.run.chaos = std::strtoull(value(i).c_str(), nullptr, 10);
    } else if (flag == "--devices") {
      arguments.run.devices = value(i);
    } else if (flag == "--cuda-graph") {
      arguments.run.graph = value(i) != "off";
    } else if (flag == "--gradients") {
      arguments.run.gradients = value(i) != "off";
    } else if (flag == "--sum-order") {
      arguments.run.fixed_order = value(i) != "any";
    } else if (flag == "--precision") {
      arguments.run.precision = PrecisionNamed(value(i));
      if (arguments.run.precision == Precision::kFloat16) arguments.run.loss_scale = {.initial = 1024, .dynamic = true};
    } else if (flag == "--stages") {
      arguments.run.stages = std::atoi(value(i).c_str());
    } else if (flag == "--pipeline") {
      arguments.run.pipeline = std::atoi(value(i).c_str());
    } else if (flag == "--copy-inputs") {
      arguments.run.copy_inputs = true;
    } else if (flag == "--recompute") {
      arguments.run.recompute = true;
    } else if (flag == "--shard-optimizer") {
      arguments.run.shards = true;
    } else if (flag == "--gather-to") {
      arguments.run.gather_to = std::atoi(value(i).c_str());
    } else if (flag == "--place-seed") {
      arguments.run.place_seed = std::strtoull(value(i).c_str(), nullptr, 10);
    } else if (flag == "--relax") {
      const std::string text = value(i);
      const size_t equals = text.find('=');
      const double factor = equals == std::string::npos ? 0 : std::atof(text.c_str() + equals + 1);
      if (!(factor >= 1)) throw Error(ErrorCode::kConfig, "--relax '" + Escaped(text) + "' is not NAME=FACTOR with a factor of at least 1");
      arguments.relaxed[text.substr(0, equals)] = factor;
    } else if (flag == "--out") {
      arguments.out = value(i);
    } else if (word.starts_with("--")) {
      throw Error(ErrorCode::kConfig, "unknown flag '" + Escaped(word) + "'", "", kUsage);
    } else {
      arguments.folders.push_back(word);
    }
  }
  if (arguments.folders.empty()) throw Error(ErrorCode::kConfig, "no folder given", "", kUsage);
  if (arguments.run.threads < 1) throw Error(ErrorCode::kConfig, "--threads must be at least 1");
  if (arguments.run.streams < 0) throw Error(ErrorCode::kConfig, "--streams must be at least 0, which leaves it to the cost model");
  return arguments;
}

// Relative paths refer to the caller's directory, also under `bazel run`, which starts programs elsewhere.
std::string CallersPath(const std::string& path) {
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  return directory == nullptr || fs::path(path).is_absolute() ? path : (fs::path(directory) / path).string();
}

std::vector<std::string> FindCases(const std::string& folder) {
  if (fs::exists(fs::path(folder) / "case.json")) return {folder};
  std::vector<std::string> cases;
  if (!fs::is_directory(folder)) throw Error(ErrorCode::kIo, "no folder '" + Escaped(folder) + "'");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / "case.json")) cases.push_back(entry.path().string());
  }
  std::sort(cases.begin(), cases.end());
  if (cases.empty()) throw Error(ErrorCode::kIo, "no case.json in '" + Escaped(folder) + "' or in a folder of it");
  return cases;
}

void WriteRun(const std::string& folder, const TrainingCase& recorded, const TrainingRun& run) {
  fs::create_directories(folder);
  std::map<std::string, Tensor> arrays;
  arrays.emplace("losses", Tensor::From<double>(run.losses, Shape{static_cast<int64_t>(run.losses.size())}));
  for (const auto& [name, tensor] : run.parameters) arrays.emplace("param/" + name, tensor);
  for (const auto& [name, tensor] : run.gradients) arrays.emplace("grad/" + name, tensor);
  WriteNpz((fs::path(folder) / (recorded.name + ".npz")).string(), arrays);
}

bool Replay(const std::string& folder, const Arguments& arguments) {
  std::string name = fs::path(folder).filename().string();
  try {
    TrainingCase recorded = ReadTrainingCase(folder);
    name = recorded.name;
    if (const auto relaxed = arguments.relaxed.find(name); relaxed != arguments.relaxed.end())
      recorded.tolerance.MultiplyLoss(relaxed->second);
    const TrainingRun run = RunCase(recorded, arguments.run);
    if (!arguments.out.empty()) WriteRun(CallersPath(arguments.out), recorded, run);
    const Deviation deviation = Compare(recorded, run);
    std::printf("%-40s loss %8.3g  gradient %8.3g  parameter %8.3g  %s\n", name.c_str(), deviation.loss, deviation.gradient,
                deviation.parameter, deviation.passed() ? "passed" : "FAILED");
    for (size_t i = 0; i < std::min<size_t>(deviation.failures.size(), 5); ++i) std::printf("    %s\n", deviation.failures[i].c_str());
    return deviation.passed();
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    std::printf("%-40s FAILED\n%s\n", name.c_str(), ours != nullptr ? ours->Describe().c_str() : error.what());
    return false;
  }
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  int passed = 0, failed = 0;
  for (const std::string& folder : arguments.folders) {
    for (const std::string& found : FindCases(CallersPath(folder))) {
      Replay(found, arguments) ? ++passed : ++failed;
      std::fflush(stdout);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : ExitCode(ErrorCode::kCheckFailed);
}

}  // namespace

int ReplayCases(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return ExitCode(error.code());
  }
}

}  // namespace gradloom

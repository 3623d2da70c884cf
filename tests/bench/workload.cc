// workload MODEL.onnx BATCHES.npz WORKLOAD.json [--threads N] [--streams N] [--steps N] [--warmup N] [--seconds S] [--cpu-time]
//          [--json] [--ops] [--devices SPEC] [--precision fp32|tf32|bf16|fp16] [--cuda-graph on|off] [--autotune on|off]
//          [--sum-order fixed|any]
//
// Trains one benchmark workload and prints the median step time and related figures. With --json it prints one line with the keys that the
// peers' scripts use.
#include "tests/bench/workload.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "compiler/compile.h"
#include "compiler/cost/launch_work.h"
#include "runtime/session/session.h"
#include "tests/conformance/run_case.h"

namespace gradloom {
namespace {

struct Arguments {
  std::string model, batches, workload;
  RunOptions run{.threads = 2};
  std::string precision = "fp32", graph = "on", autotune = "off", sum_order = "fixed";
  int steps = 30, warmup = 3;
  double seconds = 30;  // measurement ends after this time, and after at least three steps
  bool cpu_time = false;
  bool json = false, ops = false;
  std::vector<std::string> disabled_passes;
};

double MsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Interpolates linearly between neighbors, like numpy's default.
double Quantile(std::vector<double> sorted, double q) {
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

int NumBatches(const TrainingCase& workload) {
  int count = 0;
  while (workload.batches.contains(workload.inputs.front() + std::to_string(count))) ++count;
  if (count == 0) throw Error(ErrorCode::kData, "the batches have no array '" + Escaped(workload.inputs.front()) + "0'");
  return count;
}

constexpr size_t kSlowest = 40;

// The shapes of an instruction's operands: "[64,128] [128,10] -> [64,10]".
std::string OperandShapes(const Program& program, const Instruction& instruction) {
  std::string reads, writes;
  for (const Use& use : instruction.uses) {
    if (use.buffer < 0 || use.access == Access::kScratch) continue;
    (use.access == Access::kRead ? reads : writes) += program.buffers[static_cast<size_t>(use.buffer)].shape.ToString() + " ";
  }
  return reads + "-> " + writes;
}

// Prints the time per kernel and operator over the timed steps, largest first, and then the slowest instructions, with the rates at which
// they compute and move what the cost model counts.
void PrintOperators(Session& session, int64_t steps) {
  struct Row {
    int64_t nanoseconds = 0, launches = 0;
  };
  std::map<std::string, Row> rows;
  struct Launch {
    int64_t nanoseconds = 0;
    const Program* program = nullptr;
    const Instruction* instruction = nullptr;
  };
  std::vector<Launch> slowest;
  int64_t all = 0;
  const Plan& plan = session.plan();
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<int64_t> times = session.executor().nanoseconds(static_cast<int>(p));
    for (size_t i = 0; i < times.size(); ++i) {
      const Instruction& instruction = plan.programs[p].instructions[i];
      Row& row = rows[instruction.kernel + " (" + instruction.op + ")"];
      row.nanoseconds += times[i], ++row.launches;
      slowest.push_back({times[i], &plan.programs[p], &instruction});
      all += times[i];
    }
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
  for (const auto& [name, row] : sorted) {
    std::printf("%6.1f %%  %9.3f ms  %5lld x  %s\n", 100.0 * static_cast<double>(row.nanoseconds) / static_cast<double>(all),
                static_cast<double>(row.nanoseconds) * 1e-6 / static_cast<double>(steps), static_cast<long long>(row.launches),
                name.c_str());
  }
  std::sort(slowest.begin(), slowest.end(), [](const Launch& a, const Launch& b) { return a.nanoseconds > b.nanoseconds; });
  if (slowest.size() > kSlowest) slowest.resize(kSlowest);
  for (const Launch& launch : slowest) {
    const Instruction& instruction = *launch.instruction;
    const double nanoseconds = std::max(static_cast<double>(launch.nanoseconds) / static_cast<double>(steps), 1.0);
    const Cost cost = instruction.kind == InstructionKind::kLaunch ? CostOfLaunch(*launch.program, instruction) : Cost{};
    std::printf("%9.1f us  %6.1f GFLOP/s  %5.1f GB/s  %s (%s) '%s' %s\n", nanoseconds * 1e-3, cost.flops / nanoseconds,
                cost.bytes / nanoseconds, instruction.kernel.c_str(), instruction.op.c_str(), Escaped(instruction.origin).c_str(),
                OperandShapes(*launch.program, instruction).c_str());
  }
}

// A launch with more flops per byte moved than this counts as compute-bound, any other as memory-bound.
constexpr double kComputes = 8;

// The work of a step on one device: the flops of compute-bound launches, and the bytes of the others.
Cost WorkOfStep(const Plan& plan) {
  const Program& program = plan.programs[static_cast<size_t>(plan.entries.front().ranks.front().program)];
  Cost work;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != InstructionKind::kLaunch) continue;
    const Cost cost = CostOfLaunch(program, instruction);
    if (cost.flops > kComputes * cost.bytes) {
      work.flops += cost.flops;
    } else {
      work.bytes += cost.bytes;
    }
  }
  return work;
}

// `start` is the wall-clock time at which the program started.
int Run(const Arguments& a, double start) {
  // The process's CPU time counts from 0.
  const auto now = [&] { return a.cpu_time ? MsOf(CLOCK_PROCESS_CPUTIME_ID) : MsOf(CLOCK_MONOTONIC) - start; };
  const TrainingCase workload = ReadWorkload(a.model, a.batches, a.workload);
  const int batches = NumBatches(workload);
  const double importing = now();
  SessionOptions session_options;
  const auto compiled = [&] {
    const Model model = Model::Load(workload.model_path);
    CompileOptions options;
    options.recipe = workload.recipe;
    SetDevices(a.run, options.recipe, session_options);
    options.control.disabled = a.disabled_passes;
    const int64_t size = FeedsOfStep(workload, 0).begin()->second.shape[0];
    options.entries.push_back({EntryKind::kStep, workload.batch_sizes.empty() ? size : workload.batch_sizes.front()});
    return std::make_shared<const Plan>(Compile(model, options));
  };
  std::vector<Feeds> feeds;
  for (int i = 0; i < batches; ++i) feeds.push_back(FeedsOfStep(workload, i));
  auto plan = compiled();
  const int64_t batch = plan->entries.front().batch;
  const double compile_s = (now() - importing) / 1e3;
  Session session(std::move(plan), session_options);
  size_t next = 0;
  // As in training, the next batch is copied to the device during the step.
  const auto step = [&] {
    const Feeds& now = feeds[next];
    next = (next + 1) % feeds.size();
    return session.Step(now, [ahead = &feeds[next]] { return ahead; }).loss;
  };
  const double first_loss = step();
  const double first_step_s = now() / 1e3;
  for (int i = 1; i < a.warmup; ++i) step();
  session.executor().set_timed(a.ops);
  std::vector<double> ms;
  double last_loss = first_loss;
  const double measuring = now();
  while (static_cast<int>(ms.size()) < a.steps && (ms.size() < 3 || now() - measuring < a.seconds * 1e3)) {
    const double begin = now();
    last_loss = step();
    ms.push_back(now() - begin);
  }
  std::string notes;
  for (const std::string& note : session.executor().TakeNotes()) notes += (notes.empty() ? "" : "; ") + note;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double median = Quantile(ms, 0.5);
  const Cost work = WorkOfStep(session.plan());
  const auto rounded = [](double value, double places) { return std::round(value * places) / places; };
  const nlohmann::ordered_json line{{"peer", "gradloom"},
                                    {"workload", std::filesystem::path(a.model).stem().string()},
                                    {"threads", a.run.threads},
                                    {"ms_per_step", rounded(median, 1e3)},
                                    {"ms_min", rounded(*std::min_element(ms.begin(), ms.end()), 1e3)},
                                    {"ms_p10", rounded(Quantile(ms, 0.1), 1e3)},
                                    {"ms_p90", rounded(Quantile(ms, 0.9), 1e3)},
                                    {"samples_per_s", rounded(static_cast<double>(batch) / median * 1e3, 1e2)},
                                    {"peak_rss_mib", rounded(static_cast<double>(usage.ru_maxrss) / 1024, 10)},
                                    {"import_s", rounded(compile_s, 1e2)},
                                    {"first_step_s", rounded(first_step_s, 1e2)},
                                    {"steps", ms.size()},
                                    {"loss_first", rounded(first_loss, 1e5)},
                                    {"loss_last", rounded(last_loss, 1e5)},
                                    {"planned_mib", rounded(static_cast<double>(session.planned_bytes()) / (1 << 20), 10)},
                                    {"computed_gflop", rounded(work.flops * 1e-9, 1e3)},
                                    {"moved_mib", rounded(work.bytes / (1 << 20), 10)},
                                    {"note", notes}};
  if (a.json) {
    std::printf("%s\n", line.dump().c_str());
  } else {
    for (const auto& [key, value] : line.items()) std::printf("%-14s %s\n", key.c_str(), value.dump().c_str());
  }
  if (a.ops) PrintOperators(session, static_cast<int64_t>(ms.size()));
  return 0;
}

}  // namespace

int RunWorkload(int argc, char** argv) {
  const double start = MsOf(CLOCK_MONOTONIC);
  Arguments a;
  CLI::App app("Trains one benchmark workload and prints its step time");
  app.add_option("model", a.model, "NAME.onnx")->required();
  app.add_option("batches", a.batches, "NAME.npz: x0, y0, x1 ...")->required();
  app.add_option("workload", a.workload, "NAME.json: loss, optimizer, batch")->required();
  app.add_option("--threads", a.run.threads, "of a device")->capture_default_str();
  app.add_option("--streams", a.run.streams, "of a device; 0: as the cost model says")->capture_default_str();
  app.add_option("--steps", a.steps, "to measure")->capture_default_str();
  app.add_option("--warmup", a.warmup, "steps before")->capture_default_str();
  app.add_option("--seconds", a.seconds, "stop measuring after this long, with at least three steps")->capture_default_str();
  app.add_flag("--cpu-time", a.cpu_time, "of the process, all threads, instead of the wall clock's");
  app.add_flag("--json", a.json, "one line");
  app.add_flag("--ops", a.ops, "time by kernel and operator");
  app.add_option("--devices", a.run.devices, "cpu, cpu:2, cuda:0 ...")->capture_default_str();
  app.add_option("--isa", a.run.isa, "of CUDA devices")->capture_default_str();
  app.add_option("--precision", a.precision, "fp32, tf32, bf16, fp16")->capture_default_str();
  app.add_option("--cuda-graph", a.graph, "on, off")->capture_default_str();
  app.add_option("--autotune", a.autotune, "on, off")->capture_default_str();
  app.add_option("--sum-order", a.sum_order, "fixed, any")->capture_default_str();
  app.add_option("--disable-pass", a.disabled_passes, "to see what a pass gains");
  CLI11_PARSE(app, argc, argv);
  // `bazel run` changes the working directory, but paths are relative to the caller's.
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY")) std::filesystem::current_path(folder);
  try {
    a.run.precision = PrecisionNamed(a.precision);
    a.run.graph = a.graph != "off";
    a.run.autotune = a.autotune == "on";
    a.run.fixed_order = a.sum_order != "any";
    return Run(a, start);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return 1;
  }
}

}  // namespace gradloom

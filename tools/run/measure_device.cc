#include "tools/run/measure_device.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/cost/launch_work.h"
#include "runtime/base/stopwatch.h"
#include "runtime/session/session.h"
#include "tools/run/quantile.h"
#include "tools/run/records/environment.h"

namespace gradloom {
namespace {

constexpr double kSecondsOfMeasurement = 0.25;
constexpr int kMinRuns = 9, kMaxRuns = 2000;
constexpr int kWarmUp = 3;
// Rows of 1024 numbers, of which a sum of two such tensors touches 192 MiB.
constexpr int64_t kRowsInMemory = 1 << 14;

double MedianOf(std::vector<double> values) { return QuantileOf(std::move(values), 0.5); }

// The lower quartile: for threads that wait for each other, where whatever else runs delays more than half of the steps of a busy machine.
double QuartileOf(std::vector<double> values) { return QuantileOf(std::move(values), 0.25); }

// The nearest number of four digits.
double Rounded(double value) {
  char text[40];
  const auto written = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 4);
  std::from_chars(text, written.ptr, value);
  return value;
}

// The processor time of the calling thread.
double ThreadSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// An initializer in ONNX text.
std::string Weights(const std::string& name, int64_t rows, int64_t columns) {
  std::string text = "float[" + std::to_string(rows) + ", " + std::to_string(columns) + "] " + name + " = {";
  for (int64_t i = 0; i < rows * columns; ++i) text += i == 0 ? "0" : i % 2 == 0 ? ",0.01" : ",-0.01";
  return text + "}";
}

// The graph of a chain of layers of this many inputs and outputs.
std::string Layers(int layers, int64_t size) {
  const std::string type = "float[N, " + std::to_string(size) + "] ";
  std::string weights, body, last = "x";
  for (int k = 0; k < layers; ++k) {
    const std::string n = std::to_string(k);
    weights += (k == 0 ? "" : ", ") + Weights("w" + n, size, size);
    body += "p" + n + " = MatMul (" + last + ", w" + n + ") h" + n + " = Relu (p" + n + ") ";
    last = "h" + n;
  }
  return "(" + type + "x) => (" + type + "y) <" + weights + "> { " + body + "y = Identity (" + last + ") }";
}

struct ProbeOptions {
  EntryKind kind = EntryKind::kStep;
  int64_t batch = 1;
  int devices = 1, threads = 1;
  int64_t bucket_bytes = 0;
};

// A model in ONNX text, of inputs and outputs of float32, which runs on ones. If it trains, its output is the loss.
class Probe {
 public:
  Probe(const std::string& graph, const ProbeOptions& options) : kind_(options.kind), threads_(options.threads) {
    CompileOptions compile;
    if (kind_ == EntryKind::kStep) compile.recipe.losses = {LossTerm{.type = "output"}};
    compile.recipe.optimizer.lr = 1e-6;
    compile.recipe.devices = options.devices;
    compile.recipe.threads = options.threads;
    compile.recipe.bucket_bytes = options.bucket_bytes;
    compile.entries = {{kind_, options.batch}};
    compile.exports = false;
    const Model model = Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\ng " + graph);
    session_ = std::make_unique<Session>(std::make_shared<const Plan>(Compile(model, compile)));
    for (const Feed& feed : session_->plan().entries[0].feeds) {
      Tensor ones(feed.dtype, feed.shape);
      std::fill_n(ones.as<float>().begin(), ones.elements(), 1.0F);
      feeds_.emplace(feed.name, std::move(ones));
    }
    for (const auto& [name, tensor] : feeds_) views_.emplace(name, tensor.view());
    for (int i = 0; i < kWarmUp; ++i) Run();
  }

  int threads() const { return threads_; }
  const Plan& plan() const { return session_->plan(); }
  const Program& program(int rank = 0) const {
    return plan().programs[static_cast<size_t>(plan().entries[0].ranks[static_cast<size_t>(rank)].program)];
  }
  const Instruction& InstructionOf(const TimedInstruction& timed) const {
    return program(timed.rank).instructions[static_cast<size_t>(timed.instruction)];
  }

  // Runs a step and returns its seconds.
  double Run() {
    const Stopwatch time;
    kind_ == EntryKind::kStep ? void(session_->Step(views_)) : session_->Forward(kind_, views_);
    return time.seconds();
  }
  std::vector<TimedInstruction> RunTimed(double& seconds) {
    session_->executor().set_timed(true);
    seconds = Run();
    session_->executor().set_timed(false);
    return session_->executor().LastTimes(0);
  }

 private:
  const EntryKind kind_;
  const int threads_;
  std::unique_ptr<Session> session_;
  std::map<std::string, Tensor> feeds_;
  Feeds views_;
};

class CpuMeasurement {
 public:
  MeasuredDevice Measure() {
    const Stopwatch time;
    const CpuDevice cpu = ThisCpu();
    cores_ = std::max(cpu.cores, 1);
    result_.cluster = LocalCluster(DeviceKind::kCpu, cores_);
    MeasureLaunches();
    MeasureProducts();
    MeasureFunctions();
    MeasureMemory();
    MeasureTeams();
    MeasureDevices();
    RoundAll();
    result_.waited = Rounded(std::max(1 - worked_ / wall_, 0.0));
    result_.seconds = time.seconds();
    return std::move(result_);
  }

 private:
  DeviceCosts& costs() { return result_.cluster.device; }

  // What `measure` returns when it is called for a quarter of a second.
  static std::vector<double> Repeated(const std::function<double()>& measure) {
    std::vector<double> values;
    for (const Stopwatch time; values.size() < kMaxRuns && (values.size() < kMinRuns || time.seconds() < kSecondsOfMeasurement);)
      values.push_back(measure());
    return values;
  }

  // The median of these. `alone`: only the calling thread works.
  double Median(const std::function<double()>& measure, bool alone) {
    const Stopwatch time;
    const double had = ThreadSeconds();
    const std::vector<double> values = Repeated(measure);
    const double median = MedianOf(values);
    if (!alone) return median;
    wall_ += time.seconds();
    worked_ += ThreadSeconds() - had;
    if (median > 0) result_.variation = std::max(result_.variation, (QuantileOf(values, 0.75) - QuantileOf(values, 0.25)) / median);
    return median;
  }

  using Counts = std::function<bool(const Instruction&)>;
  static bool AllLaunches(const Instruction&) { return true; }

  static bool Counted(const Instruction& instruction, const Counts& counts) {
    return instruction.kind == InstructionKind::kLaunch && counts(instruction);
  }

  // The sums of the works of the launches for which `counts` holds.
  static KernelWork WorkOf(const Probe& probe, const Counts& counts) {
    KernelWork all{.launches = 0};
    for (const Instruction& instruction : probe.program().instructions) {
      if (!Counted(instruction, counts)) continue;
      for (const KernelWork& work : WorkOfLaunch(probe.plan(), probe.program(), instruction)) {
        all.launches += work.launches, all.flops += work.flops, all.bytes += work.bytes, all.functions += work.functions;
      }
    }
    return all;
  }

  // Their median seconds, without their fixed costs.
  double SecondsOf(Probe& probe, const Counts& counts) {
    const auto sum_of_launches = [&] {
      double step = 0, sum = 0;
      for (const TimedInstruction& timed : probe.RunTimed(step)) {
        if (Counted(probe.InstructionOf(timed), counts)) sum += static_cast<double>(timed.end_ns - timed.begin_ns) * 1e-9;
      }
      return sum;
    };
    const double seconds = Median(sum_of_launches, probe.threads() == 1);
    return std::max(seconds - WorkOf(probe, counts).launches * costs().launch_seconds, 0.1 * seconds);
  }

  // A training step of a chain of tiny layers. What does not grow with the chain is the host's part.
  void MeasureLaunches() {
    double seconds[2], launches[2];
    const int layers[2] = {4, 64};
    for (int i : {0, 1}) {
      Probe probe(Layers(layers[i], 4), {.batch = 4});
      launches[i] = WorkOf(probe, AllLaunches).launches;
      seconds[i] = Median([&] { return probe.Run(); }, true);
    }
    costs().launch_seconds = std::max((seconds[1] - seconds[0]) / (launches[1] - launches[0]), 1e-9);
    costs().step_seconds = std::max(seconds[0] - launches[0] * costs().launch_seconds, 1e-9);
  }

  void MeasureProducts() {
    Probe probe(Layers(3, 512), {.batch = 256});
    const auto is_product = [](const Instruction& i) {
      const Op* const op = FindOp(i.domain, i.op);
      return op != nullptr && op->has(kProduct);
    };
    costs().flops_per_second = WorkOf(probe, is_product).flops / SecondsOf(probe, is_product);
  }

  // Many functions of tensors that are in the innermost caches.
  void MeasureFunctions() {
    std::string body = "h0 = Mul (x, x) ";
    constexpr int kFunctions = 16;
    for (int k = 1; k < kFunctions; ++k) {
      const std::string n = std::to_string(k), before = std::to_string(k - 1);
      body += "h" + n + " = " + (k % 2 == 0 ? "Mul" : "Sub") + " (h" + before + ", x) ";
    }
    Probe probe("(float[N, 1024] x) => (float[N, 1024] y) { " + body + "y = Add (h" + std::to_string(kFunctions - 1) + ", x) }",
                {.kind = EntryKind::kPredict, .batch = 64});
    costs().functions_per_second = WorkOf(probe, AllLaunches).functions / SecondsOf(probe, AllLaunches);
  }

  // A sum of two tensors with this number of rows: the bytes that it touches, and its seconds.
  std::pair<double, double> MeasureSum(int64_t rows, int threads) {
    Probe probe("(float[N, 1024] x, float[N, 1024] z) => (float[N, 1024] y) { y = Add (x, z) }",
                {.kind = EntryKind::kPredict, .batch = rows, .threads = threads});
    return {WorkOf(probe, AllLaunches).bytes, SecondsOf(probe, AllLaunches)};
  }

  // Sums of ever more bytes. Those fit into the caches whose rate is nearer to that of the first one than to that of the last one.
  void MeasureMemory() {
    std::vector<double> sizes, rates;
    for (int64_t rows = 128; rows <= kRowsInMemory; rows *= 2) {
      const auto [bytes, seconds] = MeasureSum(rows, 1);
      sizes.push_back(bytes);
      rates.push_back(bytes / seconds);
    }
    const double memory = rates.back(), middle = std::sqrt(std::max(rates.front(), memory) * memory);
    size_t fit = 1;
    while (fit < rates.size() && rates[fit] > middle) ++fit;
    costs().bytes_per_second = memory;
    costs().cache_bytes_per_second = std::max(MedianOf({rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(fit)}), memory);
    costs().cache_bytes = sizes[fit - 1];
  }

  // The same by all cores, of tensors beyond the caches and of some within them.
  void MeasureTeams() {
    costs().bandwidth_threads = 1;
    if (cores_ == 1) return;
    const auto [bytes, seconds] = MeasureSum(kRowsInMemory, cores_);
    costs().bandwidth_threads = std::clamp(bytes / seconds / costs().bytes_per_second, 1.0, static_cast<double>(cores_));
    costs().team_seconds = std::max(MeasureSum(128, cores_).second - MeasureSum(128, 1).second / cores_, 0.0);
  }

  // Steps of two devices, each with a layer of few weights and one of many.
  void MeasureDevices() {
    const auto graph = [](int64_t size) {
      const std::string n = std::to_string(size);
      return "(float[N, 4] x) => (float[N, 4] y) <" + Weights("u", 4, 4) + ", " + Weights("v", 4, size) + ", " + Weights("w", size, 4) +
             "> { a = MatMul (x, u) b = Relu (a) c = MatMul (b, v) d = Relu (c) y = MatMul (d, w) }";
    };
    constexpr int64_t kFew = 4, kMany = int64_t{1} << 16;
    Probe few(graph(kFew), {.batch = 2, .devices = 2, .bucket_bytes = 1}),
        many(graph(kMany), {.batch = 2, .devices = 2, .bucket_bytes = 1});
    std::vector<double> events;
    const double wake = QuartileOf(Repeated([&] {
      double seconds = 0;
      const std::vector<TimedInstruction> times = few.RunTimed(seconds);
      int64_t begin = INT64_MAX, end = INT64_MIN;
      for (const TimedInstruction& timed : times) begin = std::min(begin, timed.begin_ns), end = std::max(end, timed.end_ns);
      AddEvents(few, times, events);
      return std::max(seconds - static_cast<double>(end - begin) * 1e-9, 0.0);
    }));
    costs().wake_seconds = std::max(wake - costs().step_seconds, 0.0);
    if (!events.empty()) costs().event_seconds = QuartileOf(events);
    const auto collective = [&](Probe& probe) {
      double bytes = 0;
      const double seconds = QuartileOf(Repeated([&] {
        double step = 0;
        return LargestCollective(probe, probe.RunTimed(step), bytes);
      }));
      return std::pair(seconds, bytes);
    };
    const auto [begin, few_bytes] = collective(few);
    const auto [all, many_bytes] = collective(many);
    // A ring of two devices passes two messages, each of half of the bytes.
    result_.cluster.inside.seconds = begin / 2;
    // Bytes are no faster between devices than within the caches, whatever delayed the few.
    result_.cluster.inside.bytes_per_second =
        std::min((many_bytes - few_bytes) / std::max(all - begin, 1e-9), costs().cache_bytes_per_second);
    result_.cluster.between = result_.cluster.inside;
  }

  // The seconds from a record to the end of a wait for it, of those waits that had begun before.
  static void AddEvents(const Probe& probe, const std::vector<TimedInstruction>& times, std::vector<double>& seconds) {
    std::map<std::pair<int, int>, int64_t> records;  // by rank and event: the end
    for (const TimedInstruction& timed : times) {
      const Instruction& instruction = probe.InstructionOf(timed);
      if (instruction.kind == InstructionKind::kRecord) records[{timed.rank, instruction.event}] = timed.begin_ns;
    }
    for (const TimedInstruction& timed : times) {
      const Instruction& instruction = probe.InstructionOf(timed);
      if (instruction.kind != InstructionKind::kWait) continue;
      const int64_t record = records.at({timed.rank, instruction.event});
      if (record > timed.begin_ns) seconds.push_back(static_cast<double>(timed.end_ns - record) * 1e-9);
    }
  }

  // The seconds of the all-reduce of most bytes, from the arrival of the last device to the end, and its bytes.
  static double LargestCollective(const Probe& probe, const std::vector<TimedInstruction>& times, double& bytes) {
    struct Reached {
      int64_t last = INT64_MIN, end = INT64_MIN;
      double bytes = 0;
    };
    std::map<int, Reached> collectives;  // by tag
    for (const TimedInstruction& timed : times) {
      const Instruction& instruction = probe.InstructionOf(timed);
      if (instruction.kind != InstructionKind::kCollective) continue;
      Reached& reached = collectives[instruction.tag];
      reached.last = std::max(reached.last, timed.begin_ns);
      reached.end = std::max(reached.end, timed.end_ns);
      reached.bytes = static_cast<double>(BytesRead(probe.program(timed.rank), instruction));
    }
    double seconds = 0;
    bytes = 0;
    for (const auto& [tag, reached] : collectives) {
      if (reached.bytes <= bytes) continue;
      bytes = reached.bytes;
      seconds = static_cast<double>(reached.end - reached.last) * 1e-9;
    }
    return seconds;
  }

  void RoundAll() {
    DeviceCosts& c = costs();
    for (double* value : {&c.flops_per_second, &c.functions_per_second, &c.bytes_per_second, &c.cache_bytes_per_second, &c.cache_bytes,
                          &c.bandwidth_threads, &c.launch_seconds, &c.team_seconds, &c.step_seconds, &c.wake_seconds, &c.event_seconds,
                          &result_.cluster.inside.seconds, &result_.cluster.inside.bytes_per_second, &result_.cluster.between.seconds,
                          &result_.cluster.between.bytes_per_second})
      *value = Rounded(*value);
  }

  int cores_ = 1;
  double wall_ = 0, worked_ = 0;  // seconds of the measurements of one thread, and those in which it had a core
  MeasuredDevice result_;
};

}  // namespace

MeasuredDevice MeasureCpu() { return CpuMeasurement().Measure(); }

}  // namespace gradloom

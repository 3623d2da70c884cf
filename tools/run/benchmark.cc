#include "tools/run/benchmark.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/data/batches.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/session.h"
#include "tools/report/schedule.h"
#include "tools/run/options/micro_batch.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/quantile.h"
#include "tools/run/records/environment.h"
#include "tools/run/set_up.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

// The number of random batches: enough that none is in the caches from the previous step.
constexpr int64_t kRandomBatches = 4;
// As many as random data can have samples for.
constexpr int64_t kMostBatch = (int64_t{1} << 24) / kRandomBatches;
// The share of a step from which on a line of advice is given.
constexpr double kMinAdviceShare = 0.1;

// Random data needs a batch size, so that it consists of whole batches.
void AddRandomData(Configuration& configuration) {
  if (!configuration.Text("data.train").empty()) return;
  const int64_t batch = std::max<int64_t>(configuration.Integer("data.batch"), 32);
  if (batch > kMostBatch) {
    throw Error(ErrorCode::kConfig,
                "a batch of " + std::to_string(batch) + " samples is too large to be measured with random data: at most " +
                    std::to_string(kMostBatch),
                Escaped(configuration.origin("data.batch").ToString(), 4096), "use a smaller --batch, or your own data: --data train.npz");
  }
  configuration.SetFlag(*FindKey("data.train"), {"random:" + std::to_string(kRandomBatches * batch)});
}

// Repeats the whole batches of a data set.
class Feeder {
 public:
  Feeder(const Dataset& data, int64_t batch, std::map<std::string, int> axes, int cores) : axes_(std::move(axes)), cores_(cores) {
    const int64_t whole = std::max(data.rows() / batch * batch, std::min(batch, data.rows()));
    order_.resize(static_cast<size_t>(whole));
    std::iota(order_.begin(), order_.end(), 0);
    data_ = &data;
    batch_ = batch;
    Rewind();
  }

  Feeds Next() {
    if (next_ == batches_->count()) Rewind();
    return batches_->Get(next_++);
  }

 private:
  void Rewind() {
    batches_ = std::make_unique<Batches>(*data_, order_, batch_, BatchesOptions{.axes = axes_, .cores = cores_});
    next_ = 0;
  }

  const Dataset* data_ = nullptr;
  int64_t batch_ = 0, next_ = 0;
  const std::map<std::string, int> axes_;
  const int cores_;
  std::vector<int64_t> order_;
  std::unique_ptr<Batches> batches_;
};

// What the devices did in a step, in milliseconds.
struct StepSpans {
  double span_ms = 0;      // from the start of the first instruction to the end of the last one
  double computes_ms = 0;  // mean over the devices
  double exposed_ms = 0;   // maximum over the devices
};

using TimeSpan = std::pair<int64_t, int64_t>;

// The length of the union of the intervals.
int64_t CoveredTime(std::vector<TimeSpan> intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t covered = 0, end = INT64_MIN;
  for (const auto& [from, to] : intervals) {
    covered += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return covered;
}

StepSpans SpansOf(const Plan& plan, int entry, const std::vector<TimedInstruction>& times) {
  struct OfDevice {
    std::vector<TimeSpan> computes, all;
  };
  std::map<int, OfDevice> devices;
  int64_t begin = INT64_MAX, end = INT64_MIN;
  for (const TimedInstruction& timed : times) {
    const int program = plan.entries[static_cast<size_t>(entry)].ranks[static_cast<size_t>(timed.rank)].program;
    const Instruction& instruction = plan.programs[static_cast<size_t>(program)].instructions[static_cast<size_t>(timed.instruction)];
    if (IsSignal(instruction)) continue;
    OfDevice& device = devices[timed.rank];
    device.all.emplace_back(timed.begin_ns, timed.end_ns);
    if (!Communicates(instruction)) device.computes.emplace_back(timed.begin_ns, timed.end_ns);
    begin = std::min(begin, timed.begin_ns);
    end = std::max(end, timed.end_ns);
  }
  StepSpans spans;
  for (const auto& [rank, device] : devices) {
    const int64_t computes = CoveredTime(device.computes);
    spans.computes_ms += static_cast<double>(computes) * 1e-6 / static_cast<double>(devices.size());
    spans.exposed_ms = std::max(spans.exposed_ms, static_cast<double>(CoveredTime(device.all) - computes) * 1e-6);
  }
  if (!devices.empty()) spans.span_ms = static_cast<double>(end - begin) * 1e-6;
  return spans;
}

class Run {
 public:
  Run(Configuration configuration, const BenchmarkOptions& options)
      : options_(options),
        set_up_(SetUpTraining(configuration)),
        session_(set_up_.plan, {.seed = configuration.Integer("train.seed"), .executor = ExecutorOptionsOf(configuration)}),
        feeder_(set_up_.data.train, set_up_.options.batch, FeedAxes(session_.plan()), session_.host_threads()) {
    result_.model = set_up_.model_path;
    result_.data = configuration.Text("data.train");
    result_.batch = set_up_.options.batch;
    result_.rows = set_up_.data.train.rows();
    const size_t devices = set_up_.plan->num_ranks();
    result_.devices = (devices == 1 ? "" : std::to_string(devices) + " x ") + std::string(DeviceKindName(set_up_.plan->targets[0].device));
    result_.precision = configuration.Text("train.precision");
    result_.threads = set_up_.plan->programs.front().streams.front().threads;
    result_.compile_s = set_up_.compile_seconds;
    result_.planned = ReportMemory(*set_up_.plan);
    set_up_.plan = session_.shared_plan();  // which does not hold a second copy of the weights
  }

  Benchmark Measure() {
    result_.first_loss = Step();
    result_.first_step_s = options_.since_start.seconds();
    for (int64_t i = 1; i < options_.warmup; ++i) Step();
    waits_.clear();
    const Stopwatch time;
    const auto late = [&] { return time.ms() > options_.seconds * 1e3; };
    for (int64_t repeat = 0; repeat < options_.repeats && (repeat == 0 || !late()); ++repeat) {
      std::vector<double> ms;
      for (int64_t i = 0; i < options_.steps && (i < 3 || !late()); ++i) {
        result_.last_loss = Step();
        ms.push_back(step_ms_);
      }
      result_.repeat_medians.push_back(QuantileOf(ms, 0.5));
      result_.ms.insert(result_.ms.end(), ms.begin(), ms.end());
    }
    result_.wait_ms = QuantileOf(waits_, 0.5);
    const double waited = std::accumulate(waits_.begin(), waits_.end(), 0.0);
    result_.wait_share = waited / (waited + std::accumulate(result_.ms.begin(), result_.ms.end(), 0.0));
    result_.memory = session_.device_memory();
    const ProcessMemory memory = ThisProcess();
    result_.resident_bytes = memory.resident_bytes;
    result_.peak_bytes = memory.peak_bytes;
    FindShares();
    Advise();
    return std::move(result_);
  }

 private:
  double Step() {
    const Stopwatch asked;
    const Feeds feeds = feeder_.Next();
    waits_.push_back(asked.ms());
    const Stopwatch time;
    const double loss = session_.Step(feeds).loss;
    step_ms_ = time.ms();
    if (!std::isfinite(loss)) {
      throw Error(ErrorCode::kDiverged,
                  "the loss is not finite: arithmetic with NaN and infinity is slow, so the times would be misleading", "",
                  "use a smaller --lr, or --clip-norm 1");
    }
    return loss;
  }

  // Measured in separate steps, since timing every instruction costs time.
  void FindShares() {
    const auto steps = std::min<int64_t>(options_.steps, 10);
    session_.executor().set_timed(true);
    for (int64_t i = 0; i < steps; ++i) {
      Step();
      const StepSpans spans = SpansOf(session_.plan(), session_.last_entry(), session_.executor().LastTimes(session_.last_entry()));
      result_.device_busy += spans.computes_ms / step_ms_ / static_cast<double>(steps);
      result_.exposed_allreduce_ms += spans.exposed_ms / static_cast<double>(steps);
      result_.host_ms += std::max(0.0, step_ms_ - spans.span_ms) / static_cast<double>(steps);
    }
    session_.executor().set_timed(false);
    struct Sum {
      int64_t all = 0, slow = 0;
    };
    std::map<std::string, Sum> sums;
    int64_t total = 0;
    const Plan& plan = session_.plan();
    for (size_t p = 0; p < plan.programs.size(); ++p) {
      const std::vector<int64_t> times = session_.executor().nanoseconds(static_cast<int>(p));
      for (size_t i = 0; i < times.size(); ++i) {
        const Instruction& instruction = plan.programs[p].instructions[i];
        // The other streams work meanwhile.
        if (IsSignal(instruction)) continue;
        const std::string op = instruction.kind == InstructionKind::kLaunch       ? instruction.op
                               : instruction.kind == InstructionKind::kCollective ? std::string(CollectiveName(instruction.collective))
                                                                                  : InstructionName(instruction);
        sums[op].all += times[i];
        if (instruction.kernel.starts_with("reference.")) sums[op].slow += times[i];
        total += times[i];
      }
    }
    for (const auto& [op, sum] : sums) {
      const auto all = static_cast<double>(sum.all);
      result_.shares.push_back(
          {op, all / static_cast<double>(std::max<int64_t>(total, 1)), all * 1e-6 / static_cast<double>(steps), 2 * sum.slow > sum.all});
    }
    std::sort(result_.shares.begin(), result_.shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  }

  void Advise() {
    const int cores = ThisCpu().cores;
    if (result_.threads > cores) {
      result_.advice.push_back(std::to_string(result_.threads) + " threads on " + std::to_string(cores) + " cores: --threads " +
                               std::to_string(cores));
    }
    const double wait = result_.wait_ms / (result_.wait_ms + result_.Quantile(0.5));
    if (wait > kMinAdviceShare)
      result_.advice.push_back(Short(100 * wait) +
                               "% of the time is spent waiting for data: use fewer transforms, or .npz instead of a table");
    double slow = 0;
    std::string ops;
    for (const Benchmark::Share& share : result_.shares) {
      if (!share.slow) continue;
      slow += share.share;
      if (share.share > kMinAdviceShare / 4) ops += (ops.empty() ? "" : ", ") + share.op;
    }
    if (slow > kMinAdviceShare) result_.advice.push_back(Short(100 * slow) + "% of the step runs in slow reference kernels: " + ops);
    if (result_.variation() > kMinAdviceShare) {
      result_.advice.push_back("the times vary by " + Short(100 * result_.variation()) +
                               "%: check whether the machine is shared, compare medians, and repeat");
    }
  }

  const BenchmarkOptions options_;
  TrainingSetUp set_up_;
  Session session_;
  Feeder feeder_;
  Benchmark result_;
  double step_ms_ = 0;
  std::vector<double> waits_;
};

}  // namespace

double Benchmark::Quantile(double q) const { return QuantileOf(ms, q); }

double Benchmark::variation() const {
  const auto count = static_cast<double>(ms.size());
  const double mean = std::accumulate(ms.begin(), ms.end(), 0.0) / count;
  double squares = 0;
  for (const double value : ms) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / count) / mean;
}

Benchmark Measure(Configuration configuration, const BenchmarkOptions& options) {
  DropUnfitPlacement(configuration);
  ApplyMicroBatch(configuration);
  AddRandomData(configuration);
  return Run(configuration, options).Measure();
}

}  // namespace gradloom

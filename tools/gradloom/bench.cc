// gradloom bench: measures training speed on this machine.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/stopwatch.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/benchmark.h"
#include "tools/run/options/key_values.h"
#include "tools/run/outputs.h"
#include "tools/run/records/environment.h"
#include "tools/run/train/job.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

// Initialized before main: the time to the first step starts here.
const Stopwatch kSinceStart;

constexpr size_t kShownShares = 8;

struct BenchFlags {
  BenchmarkOptions options;
  std::string out;
  bool json = false;
};

nlohmann::ordered_json JsonOf(const Benchmark& b) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::array();
  for (const Benchmark::Share& share : b.shares) shares.push_back({{"op", share.op}, {"share", share.share}, {"ms", share.ms}});
  return {{"model", b.model},
          {"data", b.data},
          {"batch", b.batch},
          {"devices", b.devices},
          {"precision", b.precision},
          {"threads", b.threads},
          {"steps", b.ms.size()},
          {"ms_per_step", b.Quantile(0.5)},
          {"ms_min", b.Quantile(0)},
          {"ms_p10", b.Quantile(0.1)},
          {"ms_p90", b.Quantile(0.9)},
          {"ms_p95", b.Quantile(0.95)},
          {"ms_p99", b.Quantile(0.99)},
          {"variation", b.variation()},
          {"repeat_medians_ms", b.repeat_medians},
          {"samples_per_s", b.samples_per_s()},
          {"wait_ms", b.wait_ms},
          {"wait_share", b.wait_share},
          {"device_busy", b.device_busy},
          {"exposed_allreduce_ms", b.exposed_allreduce_ms},
          {"host_ms", b.host_ms},
          {"compile_s", b.compile_s},
          {"first_step_s", b.first_step_s},
          {"planned_bytes", b.planned.fullest().total_bytes()},
          {"memory", ToJson(b.memory)["devices"]},
          {"resident_bytes", b.resident_bytes},
          {"peak_bytes", b.peak_bytes},
          {"loss_first", b.first_loss},
          {"loss_last", b.last_loss},
          {"ops", shares},
          {"advice", b.advice}};
}

void Print(const Benchmark& b) {
  const auto line = [](const char* name, const std::string& text) { std::printf("%-14s %s\n", name, text.c_str()); };
  std::printf("=== gradloom bench ===  %s  batch %lld  %s, %d %s%s  %s  %zu steps in %zu repeats\n", Escaped(b.model, 4096).c_str(),
              static_cast<long long>(b.batch), b.devices.c_str(), b.threads, b.threads == 1 ? "thread" : "threads",
              b.devices.find(' ') == std::string::npos ? "" : " each", b.precision.c_str(), b.ms.size(), b.repeat_medians.size());
  const auto [least, most] = std::minmax_element(b.repeat_medians.begin(), b.repeat_medians.end());
  line("step time", "median " + Short(b.Quantile(0.5)) + " ms   p95 " + Short(b.Quantile(0.95)) + "   p99 " + Short(b.Quantile(0.99)) +
                        "   min " + Short(b.Quantile(0)) + "   varies by " + Short(100 * b.variation()) + "%   medians of repeats " +
                        Short(*least) + " to " + Short(*most));
  line("throughput", WithCommas(static_cast<int64_t>(b.samples_per_s())) + " samples/s");
  line("first step", Duration(b.first_step_s) + " from the start of the process   (compile " + Duration(b.compile_s) + ")");
  line("device busy", Short(100 * b.device_busy) + "%   host " + Short(b.host_ms) + " ms per step   exposed all-reduce " +
                          Short(b.exposed_allreduce_ms) + " ms   input wait " + Short(100 * b.wait_share) + "%");
  line("data", Escaped(b.data, 4096) + "   wait " + Short(b.wait_ms) + " ms per step");
  line("memory", "planned " + Bytes(b.planned.fullest().total_bytes()) + " (weights and optimizer " +
                     Bytes(b.planned.fullest().state_bytes) + ")   resident " + Bytes(b.resident_bytes) + "   at most " +
                     Bytes(b.peak_bytes));
  const DeviceMemory& held = b.memory.front();
  line("", "allocated " + Bytes(held.allocated) + "   cached " + Bytes(held.cached) + "   free " + Bytes(held.free));
  std::string shares;
  for (size_t i = 0; i < std::min(b.shares.size(), kShownShares); ++i) {
    shares += (i == 0 ? "" : "  ") + b.shares[i].op + " " + Short(100 * b.shares[i].share) + "%";
  }
  line("top ops", shares);
  if (b.advice.empty()) line("advice", "none");
  for (const std::string& advice : b.advice) line("advice", advice);
  line("RESULT", "PASSED");
}

int Bench(const Configuration& configuration, const BenchFlags& flags) {
  if (flags.options.steps < 1 || flags.options.repeats < 1 || flags.options.warmup < 1) {
    throw Error(ErrorCode::kConfig, "steps, repeats and warm-up steps must be at least 1", "", "use --steps 50 --repeats 5 --before 5");
  }
  if (const JobTopology topology = TopologyOf(configuration); topology.world > 1) {
    throw Error(ErrorCode::kUnsupported,
                "bench measures one process, but this job has " + std::to_string(topology.world) + ", which would disturb each other",
                "topology " + Escaped(ToString(topology), 1000),
                "use several devices in one process with --devices cpu:4; train prints the samples/s of a job; GRADLOOM_WORLD_SIZE=1 and "
                "GRADLOOM_RANK=0 measure this process alone");
  }
  if (!flags.out.empty()) CheckCanWrite(flags.out);
  PrintSetKeys(configuration);
  const Benchmark benchmark = Measure(configuration, flags.options);
  const std::string json = JsonLine(JsonOf(benchmark));
  if (!flags.out.empty()) WriteFileAtomically(flags.out, json + "\n");
  if (flags.json) {
    std::printf("%s\n", json.c_str());
  } else {
    Print(benchmark);
  }
  return 0;
}

}  // namespace

Action DeclareBench(CLI::App& app) {
  ConfigurationFlags keys;
  auto flags = std::make_shared<BenchFlags>();
  flags->options.since_start = kSinceStart;
  keys.Declare(app, kUseRecipe | kUseData);
  app.add_option("--steps", flags->options.steps, "steps per repeat")->capture_default_str();
  app.add_option("--repeats", flags->options.repeats, "number of repeats")->capture_default_str();
  app.add_option("--before", flags->options.warmup, "warm-up steps, not counted")->capture_default_str();
  app.add_option("--seconds", flags->options.seconds, "start no more repeats after this time")->capture_default_str();
  app.add_option("-o,--output", flags->out, "also write the JSON object to this file");
  app.add_flag("--json", flags->json, "print one JSON object");
  return [keys, flags] { return Bench(keys.Resolve(), *flags); };
}

}  // namespace gradloom

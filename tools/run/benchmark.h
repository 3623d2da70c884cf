// How fast a configuration trains, measured in its steady state.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/plan/memory_report.h"
#include "tools/config/configuration.h"

namespace gradloom {

struct BenchmarkOptions {
  int64_t steps = 50;  // of a repeat
  int64_t warmup = 5;  // before the first one, not counted
  int64_t repeats = 5;
  double seconds = 30;  // no repeat begins after so long, and none of more than three steps goes on
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();  // of the process
};

struct Benchmark {
  int64_t batch = 0, rows = 0;
  int threads = 0;
  std::string model, data;
  std::string devices, precision;      // "2 x cpu", "fp32"
  std::vector<double> ms;              // of each step
  std::vector<double> repeat_medians;  // ms
  double wait_ms = 0;                  // the median wait for data, beside the step
  double wait_share = 0;               // of the time of all steps
  // Of steps in which every instruction was timed: means over them.
  double device_busy = 0;           // the share of a step in which a device computes; the mean over the devices
  double exposed_allreduce_ms = 0;  // in which the device that waits longest meets others or waits for them, and computes nothing
  double host_ms = 0;               // of a step before its first instruction on any device and behind the last one
  double first_loss = 0, last_loss = 0;
  double compile_s = 0, first_step_s = 0;  // from the start of the process, import and compile included
  MemoryReport planned;
  std::vector<DeviceMemory> memory;
  int64_t resident_bytes = 0, peak_bytes = 0;  // of the process

  struct Share {
    std::string op;
    double share = 0;   // of the time in operators
    double ms = 0;      // a step
    bool slow = false;  // by plain loops
  };
  std::vector<Share> shares;  // the most first
  std::vector<std::string> advice;

  // Linear between neighbours, as numpy's default; of all steps.
  double Quantile(double q) const;
  double samples_per_s() const { return static_cast<double>(batch) / Quantile(0.5) * 1e3; }
  // Standard deviation over mean.
  double variation() const;
};

// Trains on the configured data, or on random numbers where there are none. Throws as SetUpTraining, Error(kDiverged) for
// a loss that is not finite.
Benchmark Measure(Configuration configuration, const BenchmarkOptions& options);

}  // namespace gradloom

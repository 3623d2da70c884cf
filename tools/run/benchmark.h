// Measures the steady-state training speed of a configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/stopwatch.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/memory_report.h"
#include "tools/config/configuration.h"

namespace gradloom {

struct BenchmarkOptions {
  int64_t steps = 50;  // per repeat
  int64_t warmup = 5;  // before the first repeat, not counted
  int64_t repeats = 5;
  double seconds = 30;         // no repeat starts after this time, and a repeat of more than three steps ends then
  Stopwatch since_start = {};  // of the process
};

struct Benchmark {
  int64_t batch = 0, rows = 0;
  int threads = 0;
  std::string model, data;
  std::string devices, precision;      // "2 x cpu", "fp32"
  std::vector<double> ms;              // time of each step
  std::vector<double> repeat_medians;  // in ms
  double wait_ms = 0;                  // the median wait for data, in addition to the step
  double wait_share = 0;               // share of the total time of all steps
  // Means over steps in which every instruction was timed.
  double device_busy = 0;           // share of a step in which a device computes; mean over the devices
  double exposed_allreduce_ms = 0;  // time in which the device that waits longest communicates or waits for others, and computes nothing
  double host_ms = 0;               // time of a step before its first instruction on any device and after the last one
  double first_loss = 0, last_loss = 0;
  double compile_s = 0, first_step_s = 0;  // from the start of the process, including import and compilation
  MemoryReport planned;
  std::vector<DeviceMemory> memory;
  int64_t resident_bytes = 0, peak_bytes = 0;  // of the process

  struct Share {
    std::string op;
    double share = 0;   // share of the time in operators
    double ms = 0;      // per step
    bool slow = false;  // runs in a slow reference kernel
  };
  std::vector<Share> shares;  // in descending order
  std::vector<std::string> advice;

  // Quantile over all steps, interpolated linearly as in numpy's default.
  double Quantile(double q) const;
  double samples_per_s() const { return static_cast<double>(batch) / Quantile(0.5) * 1e3; }
  // Standard deviation divided by the mean.
  double variation() const;
};

// Trains on the configured data, or on random numbers if there is none. Throws as SetUpTraining, and Error(kDiverged) for a loss that is
// not finite.
Benchmark Measure(Configuration configuration, const BenchmarkOptions& options);

}  // namespace gradloom

#include "compiler/cost/cost_model.h"

#include <algorithm>
#include <limits>

namespace gradloom {

DeviceCosts DefaultCosts(DeviceKind device) {
  if (device == DeviceKind::kCpu) {
    return {.flops_per_second = 40e9,
            .bytes_per_second = 10e9,
            .compute_threads = std::numeric_limits<int>::max(),
            .bandwidth_threads = 4,
            .launch_seconds = 0.5e-6,
            .collective_seconds = 20e-6,
            .link_bytes_per_second = 5e9,
            .wake_seconds = 50e-6,
            .event_seconds = 5e-6};
  }
  // 60% of the rates in the data sheet of an H100 (67, 495 and 989 TFLOP/s), and 80% of its 3.35 TB/s. Of its 132 multiprocessors, NCCL's
  // kernels take 16: one for each of their thread blocks, which are as many as its channels among GPUs that NVLink connects
  // (NVLS_NCHANNELS_SM90 in NCCL's transport/nvls.cc; its rings have up to 24). The costs of a launch and of a step
  // are those that explain three steps measured on an H200 (docs/gpu.md, "Predicted performance").
  return {.flops_per_second = 40e12,
          .tf32_flops_per_second = 300e12,
          .half_flops_per_second = 600e12,
          .bytes_per_second = 2.7e12,
          .streams_share = true,
          .launch_seconds = 3e-6,
          .collective_seconds = 20e-6,
          .link_bytes_per_second = 200e9,
          .collective_share = 16.0 / 132,
          .step_seconds = 20e-6,
          .event_seconds = 2e-6};
}

int64_t BucketBytes(const DeviceCosts& device) {
  return static_cast<int64_t>(10 * device.collective_seconds * device.link_bytes_per_second);
}

double WorkSeconds(const KernelWork& work, MatrixWork matrix, double cached, int threads, const DeviceCosts& device) {
  const double of_matrix = matrix == MatrixWork::kHalf   ? device.half_flops_per_second
                           : matrix == MatrixWork::kTf32 ? device.tf32_flops_per_second
                                                         : 0;
  const double flops_per_second = of_matrix > 0 ? of_matrix : device.flops_per_second;
  const double cache_rate = device.cache_bytes_per_second > 0 ? device.cache_bytes_per_second : device.bytes_per_second;
  const auto by = [&](int team) {
    const int computing = std::min(team, device.compute_threads);
    const double functions = device.functions_per_second > 0 ? work.functions / (device.functions_per_second * computing) : 0;
    const double memory = (1 - cached) * work.bytes / (device.bytes_per_second * std::min<double>(team, device.bandwidth_threads)) +
                          cached * work.bytes / (cache_rate * computing);
    return std::max({work.flops / (flops_per_second * computing), functions, memory});
  };
  return threads > 1 ? std::min(by(1), by(threads) + device.team_seconds) : by(1);
}

double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device) {
  const double cached = cost.bytes <= device.cache_bytes ? 1 : 0;
  return device.launch_seconds + WorkSeconds({1, cost.flops, cost.bytes}, cost.matrix, cached, threads, device);
}

}  // namespace gradloom

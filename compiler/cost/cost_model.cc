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

double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device) {
  const int team = std::max(threads, 1);
  const double matrix = cost.matrix == MatrixWork::kHalf   ? device.half_flops_per_second
                        : cost.matrix == MatrixWork::kTf32 ? device.tf32_flops_per_second
                                                           : 0;
  return device.launch_seconds +
         std::max(cost.flops / ((matrix > 0 ? matrix : device.flops_per_second) * std::min(team, device.compute_threads)),
                  cost.bytes / (device.bytes_per_second * std::min(team, device.bandwidth_threads)));
}

}  // namespace gradloom

#include "compiler/cost/cost_model.h"

#include <algorithm>

namespace gradloom {

DeviceCosts DefaultCosts(DeviceKind device) {
  if (device == DeviceKind::kCpu) {
    return {.flops_per_second = 40e9, .bytes_per_second = 10e9, .bandwidth_threads = 4, .launch_seconds = 0.5e-6, .event_seconds = 5e-6};
  }
  return {.flops_per_second = 30e12, .bytes_per_second = 2e12, .bandwidth_threads = 1, .launch_seconds = 3e-6, .event_seconds = 2e-6};
}

double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device) {
  const int team = std::max(threads, 1);
  return device.launch_seconds + std::max(cost.flops / (device.flops_per_second * team),
                                          cost.bytes / (device.bytes_per_second * std::min(team, device.bandwidth_threads)));
}

}  // namespace gradloom

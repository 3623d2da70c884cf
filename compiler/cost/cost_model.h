// The time that a device needs for an operator. The compiler makes its decisions with it.
#pragma once

#include "compiler/ops/op.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// A roofline model of a device: its peak rates of computing and of moving data, and its fixed costs.
struct DeviceCosts {
  double flops_per_second = 0;  // per thread, up to `compute_threads` threads
  // For matrix products on matrix units; 0: as flops_per_second.
  double tf32_flops_per_second = 0, half_flops_per_second = 0;
  double bytes_per_second = 0;  // per thread, up to `bandwidth_threads` threads
  // Both 1 on a GPU, whose rates are those of the device, whatever the threads of its host.
  int compute_threads = 1, bandwidth_threads = 1;
  // Whether the streams of a device share its rates (shared_device.h), as on a GPU. Otherwise each has the rates of its threads.
  bool streams_share = false;
  double launch_seconds = 0;
  // The fixed cost of a collective operation, and the rate at which its data moves between neighbors.
  double collective_seconds = 0;
  double link_bytes_per_second = 0;
  // The share of a device that a collective takes from computation while it runs: of its multiprocessors. Only with `streams_share`.
  double collective_share = 0;
  // Per step: the host's part of it on a device with its own memory, that is its launch, a batch and a loss that are copied, and learning
  // that it has ended.
  double step_seconds = 0;
  double wake_seconds = 0;   // per step with several streams: to wake and to join them
  double event_seconds = 0;  // from the end of an instruction to the start of one that waits for it on another stream
};

DeviceCosts DefaultCosts(DeviceKind device);

// The number of bytes from which on the fixed costs of a collective operation are small compared with the transfer.
int64_t BucketBytes(const DeviceCosts& device);

// The seconds that an operator takes with `threads` threads, including one launch.
double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device);

}  // namespace gradloom

// The time that a device needs for an operator. The compiler makes its decisions with it.
#pragma once

#include "compiler/ops/op.h"
#include "kernels/catalog/kernel.h"
#include "kernels/catalog/kernel_work.h"

namespace gradloom {

// A roofline model of a device: its peak rates of computing and of moving data, and its fixed costs.
struct DeviceCosts {
  double flops_per_second = 0;  // per thread, up to `compute_threads` threads
  // For matrix products on matrix units; 0: as flops_per_second.
  double tf32_flops_per_second = 0, half_flops_per_second = 0;
  // Functions by loops over elements, each with its weight (KernelWork::functions), per thread; 0: they take no time besides their bytes.
  double functions_per_second = 0;
  double bytes_per_second = 0;  // per thread, up to `bandwidth_threads` threads
  // Both 1 on a GPU, whose rates are those of the device, whatever the threads of its host.
  int compute_threads = 1;
  double bandwidth_threads = 1;
  // The caches: what a device has touched stays there until it has touched this many bytes since; 0: they count as memory. They have a
  // rate for each thread, which threads do not share.
  double cache_bytes = 0, cache_bytes_per_second = 0;
  // Whether the streams of a device share its rates (shared_device.h), as on a GPU. Otherwise each has the rates of its threads.
  bool streams_share = false;
  double launch_seconds = 0;
  double team_seconds = 0;  // of a launch by several threads: to start and join them. Small work is left to one of them.
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

// The seconds that a kernel's work takes with `threads` threads, without its launches. `cached`: the share of its bytes that are in caches.
double WorkSeconds(const KernelWork& work, MatrixWork matrix, double cached, int threads, const DeviceCosts& device);

// The seconds that an operator takes with `threads` threads, including one launch. Its bytes are in caches if they fit there.
double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device);

}  // namespace gradloom

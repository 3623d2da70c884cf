// What a device takes for the work of an operator: the plan is made with it.
#pragma once

#include "compiler/ops/op.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// A device as a roofline: what it computes and moves at best, and what it takes to begin.
struct DeviceCosts {
  double flops_per_second = 0;  // of a thread on the CPU
  // Of products by matrix units; 0: the same.
  double tf32_flops_per_second = 0, half_flops_per_second = 0;
  double bytes_per_second = 0;  // of a thread, up to `bandwidth_threads` of them
  int bandwidth_threads = 1;
  double launch_seconds = 0;
  // Of a meeting of devices, besides moving what is summed, and how fast that moves between neighbours.
  double meeting_seconds = 0;
  double link_bytes_per_second = 0;
  double wake_seconds = 0;   // of a step with several streams: to wake them and to join them
  double event_seconds = 0;  // from the end of one stream's instruction to the begin of another's that waits for it
};

DeviceCosts DefaultCosts(DeviceKind device);

// Bytes that make the fixed costs of a meeting small beside those of moving them.
int64_t BucketBytes(const DeviceCosts& device);

// Seconds of an operator with a team of `threads`.
double SecondsOf(const Cost& cost, int threads, const DeviceCosts& device);

}  // namespace gradloom

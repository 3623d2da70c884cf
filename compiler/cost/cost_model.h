// What a kernel call costs, by counting: the plan is made with it, and `simulate` runs on it.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The work of one call: arithmetic of products and convolutions counted exactly, anything else by its elements.
struct Work {
  double flops = 0;
  double bytes = 0;  // operands read and written once
};

Work WorkOf(const KernelCall& call);

// A device as a roofline: what it computes and moves at best, and what it takes to begin.
struct DeviceCosts {
  double flops_per_second = 0;  // of a thread on the CPU
  double bytes_per_second = 0;  // of a thread, up to `bandwidth_threads` of them
  int bandwidth_threads = 1;
  double launch_seconds = 0;
  double event_seconds = 0;  // from the end of one stream's instruction to the begin of another's that waits for it
};

DeviceCosts DefaultCosts(DeviceKind device);

// Seconds of a call with a team of call.threads.
double SecondsOf(const KernelCall& call, const DeviceCosts& device);

}  // namespace gradloom

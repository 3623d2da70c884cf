// The shortest device with its own memory: its memory is part of the host's, streams execute work immediately, and kernels are the
// reference kernels. docs/extending.md explains it. It runs plans for GPUs on machines without the CUDA toolkit.
#pragma once

#include "runtime/device/device.h"

namespace gradloom {

// One device, for SetCudaPlatform. It has no groups: plans for several devices are refused.
DevicePlatform& PlainPlatform();

// The number of graph launches so far.
int PlainGraphLaunches();

}  // namespace gradloom

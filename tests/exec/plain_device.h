// The shortest device with a memory of its own: it is a part of the host's, streams do at once what they are given, and kernels are the
// reference. docs/extending.md goes through it; plans for GPUs run on it where there is no toolkit.
#pragma once

#include "runtime/device/device.h"

namespace gradloom {

// One device, for SetCudaPlatform. It has no groups: plans for several devices are refused.
DevicePlatform& PlainPlatform();

// Launches of captured graphs so far.
int PlainGraphLaunches();

}  // namespace gradloom

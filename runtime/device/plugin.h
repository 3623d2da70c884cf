// The one symbol by which the library of the CUDA device is entered. Library and program are of one build: the version changes with every
// change of device.h or kernel.h.
#pragma once

#include "runtime/device/device.h"

namespace gradloom {

inline constexpr int kPluginVersion = 1;
inline constexpr char kCudaPlatformEntry[] = "gradloom_cuda_platform";

extern "C" {
// The platform, which lives as long as the process; null for another version. Does not throw.
using CudaPlatformEntry = DevicePlatform* (*)(int version);
}

}  // namespace gradloom

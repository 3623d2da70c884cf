// Shared libraries of this project that are opened when they are asked for, so that the program starts where what they need is not
// installed.
#pragma once

#include <string>

#include "runtime/device/device.h"

namespace gradloom {

struct PluginLibrary {
  const char* file = nullptr;          // "libgradloom_cuda.so"
  const char* variable = nullptr;      // of the environment: names the file, in place of all other places
  const char* build_folder = nullptr;  // where the build puts it, below the root
  const char* entry = nullptr;         // the one symbol by which it is entered
  bool global = false;                 // whether what it opens in turn has to find its symbols
};

// The address of the entry; null, with the reason in `why`, where there is no such library or it is not ours. Looks beside the program, and
// beside the shared library that this code is in. What has been opened stays open until the process ends.
void* OpenPlugin(const PluginLibrary& library, std::string& why);

// The one symbol by which the library of the CUDA device is entered. Library and program are of one build: the version changes with every
// change of device.h or kernel.h.
inline constexpr int kPluginVersion = 4;
inline constexpr char kCudaPlatformEntry[] = "gradloom_cuda_platform";

extern "C" {
// The platform, which lives as long as the process; null for another version. Does not throw.
using CudaPlatformEntry = DevicePlatform* (*)(int version);
}

}  // namespace gradloom

// Shared libraries of this project that are opened on demand, so that the program starts without their dependencies.
#pragma once

#include <string>

#include "runtime/device/device.h"

namespace gradloom {

struct PluginLibrary {
  const char* file = nullptr;          // "libgradloom_cuda.so"
  const char* variable = nullptr;      // environment variable with the path of the file; if set, no other place is searched
  const char* build_folder = nullptr;  // where the build puts it, relative to the root
  const char* entry = nullptr;         // its only exported symbol
  bool global = false;                 // whether libraries that it opens must find its symbols
};

// The address of the entry symbol; null, with the reason in `why`, if there is no such library or it is not ours. Searches beside the
// program, and beside the shared library that contains this code. An opened library stays open until the process ends.
void* OpenPlugin(const PluginLibrary& library, std::string& why);

// The entry symbol of the CUDA device's library. Library and program must be of one build: the version changes with every change of
// device.h or kernel.h.
inline constexpr int kPluginVersion = 6;
inline constexpr char kCudaPlatformEntry[] = "gradloom_cuda_platform";

extern "C" {
// Returns the platform, which lives as long as the process; null for another version. Does not throw.
using CudaPlatformEntry = DevicePlatform* (*)(int version);
}

}  // namespace gradloom

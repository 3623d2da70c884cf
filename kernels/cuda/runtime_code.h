// Kernels that are compiled when a plan is loaded.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/libraries.h"

namespace gradloom::cuda {

// Returns the kernel kPointwiseName of `source` on a device. `code`: what CompileAndCache returned; if empty, from the cache or compiled
// now. Throws Error(kDevice).
std::shared_ptr<RuntimeFunction> LoadFunction(const std::string& source, const std::string& architecture, int ordinal,
                                              const std::string& code = {});

// Whether the cache on disk has a file for the source, which LoadFunction reads. These two may be called by several threads at a time.
bool IsCached(const std::string& source, const std::string& architecture);
// Compiles the source and writes its code to the cache. Throws Error(kDevice) with the compiler's message.
std::string CompileAndCache(const std::string& source, const std::string& architecture);

}  // namespace gradloom::cuda

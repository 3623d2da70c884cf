// Kernels that are compiled when a plan is loaded.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/libraries.h"

namespace gradloom::cuda {

// Returns the kernel `name` of `source` on a device, from the cache or compiled now. Throws Error(kDevice).
std::shared_ptr<RuntimeFunction> LoadFunction(const std::string& source, const std::string& name, const std::string& architecture,
                                              int ordinal);

}  // namespace gradloom::cuda

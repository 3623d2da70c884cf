// Checks the memory limit of a plan before step 0.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// "6GiB", "500MB" or "1000000" in bytes. Throws Error(kConfig) naming `what`.
int64_t ParseBytes(const std::string& text, const std::string& what);

// Throws Error(kLimit) if the plan, which was compiled from these arguments, needs more bytes per device than devices.memory_limit allows.
// The error names the largest buffers and the largest batch that fits.
void CheckMemoryLimit(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan);

// A line on the values that a plan recomputes to fit the limit or because of the mode; "" if there are none.
std::string RecomputedLine(const CompileReport& report, RecomputeMode mode);

}  // namespace gradloom

// A bound on what a plan may take, kept before step 0.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/compile.h"
#include "tools/config/configuration.h"

namespace gradloom {

// "6GiB", "500MB", "1000000" -> bytes. Throws Error(kConfig) naming `what`.
int64_t ParseBytes(const std::string& text, const std::string& what);

// Throws Error(kLimit) where the plan, which was compiled from these, needs more bytes a device than devices.memory_limit
// allows: with its largest buffers and the largest batch that fits.
void CheckMemoryLimit(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan);

// A line on what a plan makes again to fit the limit, or because it was asked to; or nothing.
std::string RecomputedLine(const CompileReport& report, RecomputeMode mode);

}  // namespace gradloom

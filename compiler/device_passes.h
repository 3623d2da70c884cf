// The second half of the passes, which makes a device's program. Private to this directory.
#pragma once

#include "compiler/passes/pipeline.h"

namespace gradloom {

// Runs the passes of a device. If the program exceeds the recipe's memory limit, runs them again with more recomputed activations, until it
// fits or recomputing more does not help. Keeps the smallest program. The caller decides whether it fits.
void RunDevicePasses(PassContext& context, const PassControl& control);

}  // namespace gradloom

// The second half of the passes, which makes a device's program. Private to this room.
#pragma once

#include "compiler/passes/pipeline.h"

namespace gradloom {

// Runs the passes of a device; again with more activations made anew, until the program fits the recipe's memory limit or nothing more can
// go. The smallest program is kept. Whether it fits is judged by who set the limit.
void RunDevicePasses(PassContext& context, const PassControl& control);

}  // namespace gradloom

// Weights of files in half precision.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Parameters that the file has in float16 or bfloat16 become float32, exactly, with a Cast to what they were in front of all that reads
// them: an update is mostly smaller than what 11 or 8 bits of a weight can show, and optimizers' moments are smaller still. What is
// computed of them is as written. Export writes them in the file's type again. Returns how many there were.
int64_t WidenParameters(GraphBuilder& builder, const std::vector<ValueId>& parameters);

}  // namespace gradloom

// Widens weights of files in half precision.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Parameters that the file has in float16 or bfloat16 become float32, exactly, with a Cast to their type before all readers. An update is
// mostly smaller than the resolution of 11 or 8 bits, and optimizers' moments are smaller still. Computation on them stays as written.
// Export writes them in the file's type again. Returns the number of such parameters.
int64_t WidenParameters(GraphBuilder& builder, const std::vector<ValueId>& parameters);

}  // namespace gradloom

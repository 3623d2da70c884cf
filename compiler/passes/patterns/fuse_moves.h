// Removes data movement that exporters write.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// - A Concat of slices of one tensor that make up the whole tensor in another order, like the gates of a recurrent layer's weights, becomes
//   one Gather of blocks, whose gradient is another one.
// - Transpose(Gather(x, places)), if only axes of the places change, becomes Gather(x, Transpose(places)).
// - Gather(Transpose(x), places) becomes a Gather along the axis in x; the result is transposed if its axes are still in another order.
// If the intermediate value has other readers, nothing would be gained, and nothing changes.
void FuseMoves(GraphBuilder& builder);

}  // namespace gradloom

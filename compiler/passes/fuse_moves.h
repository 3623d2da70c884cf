// Makes less data movement of what exporters write.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// - Concat of slices of one tensor that are the whole of it in another order, as the gates of a recurrent layer's weights are: one Gather
//   of blocks, whose gradient is another one.
// - Transpose(Gather(x, places)) where axes of the places alone change: Gather(x, Transpose(places)).
// - Gather(Transpose(x), places): a Gather along the axis where it is in x; the result is transposed if its axes still are in another
//   order.
// Where what lies between has other readers nothing is gained, and all stays.
void FuseMoves(GraphBuilder& builder);

}  // namespace gradloom

// Lets attention read Q, K and V where one product has left them, and write their gradients there.
#pragma once

#include "compiler/graph/builder.h"
#include "kernels/catalog/kernel.h"

namespace gradloom {

// Rewrites Attention, AttentionDropout and their gradients to a packed form (runtime/base/attention_form.h), if Q, K and V, or K and V, are
// parts of one value from which they were moved by nothing but splits, slices, transpositions and reshapes, and their gradients are moved
// back in the same way. These copies are removed, and so are transpositions of Y, of a separate Q, and of their gradients. Results are the
// same bit by bit.
//
// Left as it is: parts that something else reads, too, so that they must be made anyway; attention with a past; calls that the device's
// kernels would compute in another way, or not at all, in the packed form. The batch must have been divided already.
void PackAttention(GraphBuilder& builder, DeviceKind device, int threads);

}  // namespace gradloom

// Quantization-aware training: gradients of values that are quantized and dequantized at once.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Lets gradients pass straight through each QuantizeLinear that is followed by a DequantizeLinear with the same parameters, with or without
// a Clip between them. This is how exporters write PyTorch's fake_quantize, and the gradient is PyTorch's: that of an element whose integer
// is in range is as if nothing had been rounded, that of any other is zero. Values do not change. Other forms of quantization, by blocks or
// into 8-bit floats, remain steps without a gradient. Bodies of branches and loops are included.
void PassThroughFakeQuantize(GraphBuilder& builder);

}  // namespace gradloom

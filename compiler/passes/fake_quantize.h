// Quantisation-aware training: what a model quantises and dequantises at once.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Lets gradients straight through each QuantizeLinear behind which a DequantizeLinear has the same numbers, with or without a Clip between
// them, as PyTorch's fake_quantize does, which exporters write so: that of an element whose integer is in range is as if nothing had been
// rounded, that of any other is zero. Values stay as they are. What is taken over in other ways, by blocks or into floats of 8 bits, stays
// a step without a gradient.
void PassThroughFakeQuantize(GraphBuilder& builder);

}  // namespace gradloom

// Zeros that a file puts around what a convolution reads belong to the convolution.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Gives the zeros of a Pad along spatial axes to the convolutions behind it, as TensorFlow's "same" padding needs them with strides: its
// pads differ by side. The Pad stays for what else reads it, and goes with the dead nodes where nothing does. Results are the same bits.
void FoldPads(Graph& graph);

}  // namespace gradloom

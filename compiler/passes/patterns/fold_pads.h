// Folds the zeros of a Pad into the convolutions after it.
#pragma once

#include "compiler/graph/graph.h"

namespace gradloom {

// Makes the zeros of a Pad along spatial axes pads of the convolutions after it. TensorFlow's "same" padding with strides needs this, since
// its pads differ at both sides. The Pad stays for its other readers, and is removed as dead if there are none. Results have the same bits.
void FoldPads(Graph& graph);

}  // namespace gradloom

// Sums over samples that operators hide, as operators of their own. Values keep their ids.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// ONNX's two classification losses as means become sums divided by their denominators, for which there are fast kernels. `divided`: the
// samples of a batch lie on several devices, and these sums must be of all. Before differentiation.
void ExposeLossSums(GraphBuilder& builder, bool divided);

// Where samples lie on several devices, batch normalisation in training and its gradient become sums and what is made of them. After
// differentiation.
void ExposeBatchNormSums(GraphBuilder& builder);

}  // namespace gradloom

// Sums over samples that operators hide, as operators of their own.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// Needed where the samples of a batch lie on several devices and these sums must be of all. Values keep their ids.

// ONNX's two classification losses as means become sums divided by their denominators. Before differentiation.
void ExposeLossSums(GraphBuilder& builder);

// Batch normalisation in training and its gradient become sums and what is made of them. After differentiation.
void ExposeBatchNormSums(GraphBuilder& builder);

}  // namespace gradloom

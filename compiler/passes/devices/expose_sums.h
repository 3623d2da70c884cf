// Turns sums over samples inside operators into operators of their own. Values keep their ids.
#pragma once

#include "compiler/graph/builder.h"

namespace gradloom {

// ONNX's two classification losses, if they are means, become sums divided by their denominators, for which there are fast kernels.
// `divided`: the samples of a batch are on several devices, and these sums must cover all. Run it before differentiation.
void ExposeLossSums(GraphBuilder& builder, bool divided);

// If samples are on several devices, batch normalization in training and its gradient become sums and what is computed from them. Run it
// after differentiation.
void ExposeBatchNormSums(GraphBuilder& builder);

}  // namespace gradloom

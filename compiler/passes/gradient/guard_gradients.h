// Makes gradients finite where the function is, but a part of it that has no effect is not.
#pragma once

#include <map>

#include "compiler/graph/builder.h"

namespace gradloom {

// A gradient of 0 times an infinite derivative is NaN. PyTorch's operators have derivatives of their own and are finite there; exporters
// write them as several operators, whose gradients are not. Changes
// - the branches of a Where: a division, a reciprocal or a logarithm has the operand 1 where its branch is not selected (sinc at 0),
// - a logarithm that is raised to a constant: it has no gradient at 0 (binary_cross_entropy),
// - the logarithm of a running sum of exponentials: it has no gradient while the sum is 0 (logcumsumexp),
// - atan2: divides the coordinate of smaller magnitude by the other one, so its gradient exists on the axes.
// Results stay the same, those of atan2 up to rounding. Returns what ReplaceNodes returns.
std::map<NodeId, NodeId> GuardGradients(GraphBuilder& builder);

}  // namespace gradloom

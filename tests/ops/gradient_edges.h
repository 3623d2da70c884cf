// Gradients where a derivative does not exist or a formula breaks down: ties, kinks, zeros, infinities.
// The expected values were printed by PyTorch 2.15.0 in float64, with gradients of 1 for the first output.
#pragma once

#include <vector>

#include "tests/ops/op_case.h"

namespace gradloom {

struct GradientEdge {
  OpCase op_case;
  std::vector<std::vector<double>> gradients;  // one for each fed floating operand
  bool promised = true;                        // not one of several choices that are as good
};

std::vector<GradientEdge> GradientEdges();

// Of pointwise operators, at infinities and zeros: what overflows and what cancels.
std::vector<GradientEdge> GradientsAtInfinities();

}  // namespace gradloom

// Gradients where a derivative does not exist or a formula breaks down: ties, kinks, zeros, infinities. The expected values were printed by
// PyTorch 2.15.0 in float64, with gradients of 1 for the first output.
#pragma once

#include <vector>

#include "tests/ops/op_case.h"

namespace gradloom {

struct GradientEdge {
  OpCase op_case;
  std::vector<std::vector<double>> gradients;  // one for each fed floating-point operand
  bool promised = true;                        // false if the choice among equal elements is arbitrary
};

std::vector<GradientEdge> GradientEdges();

// Pointwise operators at infinities and zeros, where values overflow or cancel.
std::vector<GradientEdge> GradientsAtInfinities();

}  // namespace gradloom

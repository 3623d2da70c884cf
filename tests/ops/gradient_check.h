// Compares gradients with finite differences in float64.
#pragma once

#include <string>

#include "tests/ops/op_case.h"

namespace gradloom {

// Differentiates the loss of the case and compares with central differences: element by element for operands of up to 64 elements, along
// random directions for larger ones. Returns "" or a description of the differences.
std::string CheckGradient(const OpCase& op_case, const TypeRules& rules);

// The same for one gradient of a float64 program. Returns "" or a description of the differences.
std::string CompareWithDifferences(const OpProgram& program, ValueId loss, ValueId operand, const Tensor& gradient, double tolerance);

// Compares the forward values in float32, float16 and bfloat16 (if the operator's types allow it) with those in float64. Returns "" or a
// description of the differences.
std::string CheckForward(const OpCase& op_case, const TypeRules& rules);

}  // namespace gradloom

// Gradients against finite differences in float64.
#pragma once

#include <string>

#include "tests/ops/op_case.h"

namespace gradloom {

// Differentiates the loss of the case and compares with central differences: element by element for
// operands of up to 64 elements, along random directions for larger ones. Returns "" or what differs.
std::string CheckGradient(const OpCase& op_case, const TypeRules& rules);

// The same of one gradient, of a program in float64. Returns "" or what differs.
std::string CompareWithDifferences(const OpProgram& program, ValueId loss, ValueId operand, const Tensor& gradient, double tolerance);

// The forward values in float32, float16 and bfloat16 (where the operator's types allow it) against those
// in float64. Returns "" or what differs.
std::string CheckForward(const OpCase& op_case, const TypeRules& rules);

}  // namespace gradloom

// Runs a CPU kernel on random operands and compares it with the reference kernel of its operator.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

struct Comparison {
  // |got - wanted| <= absolute + relative * max(|wanted| of the element, scale * the largest |wanted|).
  double absolute = 1e-6;
  double relative = 1e-5;
  double scale = 0;
  double low = -2, high = 2;  // range of random float operands
  // Fills input i instead of drawing it from the range; returns false to use the range.
  std::function<bool(int input, Tensor& tensor, std::mt19937_64& random)> fill = nullptr;
  // Also runs once for each permitted aliasing.
  bool check_aliasing = true;
  // If operands have 16 bits, the reference kernel runs in float32 and its results are rounded.
  bool widen = false;
};

// An operand in plain layout.
OperandType Plain(DType dtype, Shape shape);

// Runs the kernel `name` (if empty, the first one that serves the call) with 1, 2 and 3 threads, in the call's layouts. Differences from
// the reference, and between numbers of threads, are test failures. The operands' values are drawn from `random` as well.
void ExpectSameAsReference(KernelCall call, std::mt19937_64& random, const Comparison& how = {}, const std::string& name = "");

// A random shape of this rank with extents in [low, high].
Shape RandomShape(std::mt19937_64& random, int rank, int64_t low, int64_t high);

}  // namespace gradloom

// Runs a kernel of the CPU on random operands and compares it with the reference kernel of its operator.
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
  // Fills input i, instead of the range; returns false to leave it to the range.
  std::function<bool(int input, Tensor& tensor, std::mt19937_64& random)> fill = nullptr;
  // Runs once more for each permitted aliasing on its own.
  bool check_aliasing = true;
  // The reference kernel runs in float32 where operands have 16 bits; its results are rounded.
  bool widen = false;
};

// A plain operand.
OperandType Plain(DType dtype, Shape shape);

// Runs the kernel `name` (or the first that serves the call, where empty) with 1, 2 and 3 threads, in the
// call's layouts, and reports differences from the reference as failures, and any between numbers of threads. `random` also gives the
// operands' values.
void ExpectSameAsReference(KernelCall call, std::mt19937_64& random, const Comparison& how = {}, const std::string& name = "");

// A random shape of this rank with extents in [low, high].
Shape RandomShape(std::mt19937_64& random, int rank, int64_t low, int64_t high);

}  // namespace gradloom

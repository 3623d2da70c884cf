// How a kernel divides a call into launches, from which its time is predicted.
#pragma once

#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Launches that run one after another. Operations and bytes are those of all of them together.
struct KernelWork {
  double launches = 1;
  double flops = 0, bytes = 0;
  // Functions that loops over elements evaluate, besides products: the sum of their weights, of which an addition has 1 (FunctionWeight).
  // Counted for the CPU's kernels only.
  double functions = 0;
};

// The launches of a call that `row` serves, in their order. `least` is the work that its operator needs at least, as one launch: this is
// the result for kernels that are one launch and keep nothing in memory between reading operands and writing results.
std::vector<KernelWork> WorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least);

}  // namespace gradloom

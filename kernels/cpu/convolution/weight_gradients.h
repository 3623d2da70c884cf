// What the kernels for the gradients of convolution weights have in common: dw from x and dy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "kernels/cpu/operands.h"

namespace gradloom {

// The products that a gradient sums.
inline int64_t ProductsOfWeightGradient(const KernelCall& call) {
  const Shape &y = call.inputs[1].shape, &w = call.outputs[0].shape;
  return y.elements() * (w.elements() / w[0]);
}

// The number of parts into which a gradient with this many products is divided, each summed by one thread, by shapes alone. `read`:
// elements of x and dy, `sums`: of a part. A part needs 2^18 products to be worth its sums. There are at most four parts, and up to 32 as
// long as their sums together are at most an eighth of what is read.
inline int64_t PartsOfWeightGradient(int64_t products, int64_t read, int64_t sums) {
  return std::clamp<int64_t>(products >> 18, 1, std::clamp<int64_t>(read / (8 * sums), 4, 32));
}

// Rejects gradients of other types and ranks than 3 to `max_rank`, and convolutions in groups.
inline std::string RejectsUngroupedGradient(const KernelCall& call, int max_rank) {
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const Shape &x = call.inputs[0].shape, &y = call.inputs[1].shape, &w = call.outputs[0].shape;
  const int rank = x.rank();
  if (rank < 3 || rank > max_rank || y.rank() != rank || w.rank() != rank) return "rank " + std::to_string(rank);
  if (y[0] != x[0] || w[0] != y[1] || w[1] != x[1]) return "another batch, other channels or groups";
  return "";
}

// Rejects x and dy unless their channels are innermost.
inline std::string RejectsGradientLayouts(const KernelCall& call) {
  for (const OperandType& input : call.inputs) {
    if (!SameMemoryOrder(input.layout, ChannelsLast(input.shape.rank()), input.shape)) return "layout " + input.layout.ToString();
  }
  return "";
}

}  // namespace gradloom

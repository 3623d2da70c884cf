// Layouts that only permute dimensions, seen as plain tensors of permuted shapes: a kernel that serves plain
// operands serves those too.
#pragma once

#include <optional>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// [N, C, spatial...] with the channels innermost; plain for ranks below 3.
Layout ChannelsLast(int rank);

// Whether two layouts put every element of a tensor of this shape at the same place. Dimensions of one element
// lie anywhere. False where either has blocks and they differ.
bool SamePlaces(const Layout& a, const Layout& b, const Shape& shape);

struct PhysicalCall {
  KernelCall call;        // plain operands; where dimensions were permuted, of one rank, with ones in front
  std::vector<int> axis;  // where each dimension of the operands of full rank lies; empty: nothing was permuted
  int Axis(int logical) const { return axis.empty() ? logical : axis[static_cast<size_t>(logical)]; }
};

// The same call with the dimensions of its operands in the order in which they lie in memory, or nullopt where that is
// not one order for all of them (a scalar, or a vector along one dimension, lies in every order). Attributes and
// operands that name axes keep their logical meaning: see PhysicalCall::Axis.
std::optional<PhysicalCall> PhysicalOf(const KernelCall& call);

}  // namespace gradloom

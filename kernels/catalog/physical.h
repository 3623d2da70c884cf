// Treats layouts that only permute dimensions as plain tensors of permuted shapes, so that a kernel for plain operands also serves these.
#pragma once

#include <optional>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// [N, C, spatial...] with the channels innermost; plain for ranks below 3.
Layout ChannelsLast(int rank);

// Whether two layouts put every element of a tensor of this shape at the same place. Dimensions of one element may be anywhere. False if
// either has blocks and they differ.
bool SamePlaces(const Layout& a, const Layout& b, const Shape& shape);

struct PhysicalCall {
  KernelCall call;        // plain operands; if dimensions were permuted, of one rank, with leading ones
  std::vector<int> axis;  // the position of each dimension of the operands of full rank; empty: nothing was permuted
  int Axis(int logical) const { return axis.empty() ? logical : axis[static_cast<size_t>(logical)]; }
};

// The same call with the dimensions of its operands in memory order, or nullopt if that order is not the same for all of them (a scalar, or
// a vector along one dimension, fits every order). Attributes and operands that name axes keep their logical meaning: see
// PhysicalCall::Axis.
std::optional<PhysicalCall> PhysicalOf(const KernelCall& call);

}  // namespace gradloom

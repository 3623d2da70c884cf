// Treats layouts that only permute dimensions as plain tensors with permuted shapes, so that kernels for plain operands serve these as
// well.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// [N, C, spatial...] with the channels innermost; plain for ranks below 3.
Layout ChannelsLast(int rank);

// Whether two layouts put every element of a tensor of this shape at the same offset. Dimensions of extent 1 do not matter, and without
// elements nothing does. Otherwise returns false if either has blocks and they differ.
bool SameMemoryOrder(const Layout& a, const Layout& b, const Shape& shape);

// "" if the output can have the bytes of the input in the same order: the same shape and layout, or row-major on both sides; else the
// reason. For the rows of operators that only reinterpret elements.
std::string RejectsView(const KernelCall& call);

// The same call of operands in plain layouts.
KernelCall PlainCall(KernelCall call);

struct PhysicalCall {
  KernelCall call;        // plain operands; if dimensions were permuted, all of the same rank, with leading ones
  std::vector<int> axis;  // the position of each dimension of full-rank operands; empty: nothing was permuted
  int Axis(int logical) const { return axis.empty() ? logical : axis[static_cast<size_t>(logical)]; }
};

// The same call with the dimensions of its operands in memory order, or nullopt if that order differs between operands. A scalar, or a
// vector along one dimension, fits every order. Attributes and operands that name axes keep their logical meaning: see PhysicalCall::Axis.
std::optional<PhysicalCall> PhysicalOf(const KernelCall& call);

}  // namespace gradloom

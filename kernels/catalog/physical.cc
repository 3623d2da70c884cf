#include "kernels/catalog/physical.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace gradloom {
namespace {

std::vector<int> OrderOf(const Layout& layout, int rank) {
  if (!layout.order.empty()) return layout.order;
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The shape, padded with leading ones to this rank.
Shape Widened(const Shape& shape, int rank) {
  Shape wide;
  for (int i = shape.rank(); i < rank; ++i) wide.push_back(1);
  for (int64_t extent : shape) wide.push_back(extent);
  return wide;
}

// The dimensions with more than one element, outermost first.
std::vector<int> Walked(const std::vector<int>& order, const Shape& shape) {
  std::vector<int> walked;
  std::copy_if(order.begin(), order.end(), std::back_inserter(walked), [&](int dim) { return shape[dim] != 1; });
  return walked;
}

}  // namespace

Layout ChannelsLast(int rank) {
  Layout layout;
  if (rank < 3) return layout;
  layout.order.push_back(0);
  for (int dim = 2; dim < rank; ++dim) layout.order.push_back(dim);
  layout.order.push_back(1);
  return layout;
}

bool SameMemoryOrder(const Layout& a, const Layout& b, const Shape& shape) {
  if (a == b || shape.elements() == 0) return true;
  if (!a.blocks.empty() || !b.blocks.empty()) return false;
  return Walked(OrderOf(a, shape.rank()), shape) == Walked(OrderOf(b, shape.rank()), shape);
}

std::string RejectsView(const KernelCall& call) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  if (in.bytes() != out.bytes()) return "input and output of different size";
  if (in.layout.plain() && out.layout.plain()) return "";
  if (in.shape == out.shape && SameMemoryOrder(in.layout, out.layout, in.shape)) return "";
  return "layout " + in.layout.ToString() + " to " + out.layout.ToString();
}

KernelCall PlainCall(KernelCall call) {
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) operand.layout = {};
  }
  return call;
}

std::optional<PhysicalCall> PhysicalOf(const KernelCall& call) {
  PhysicalCall physical{call, {}};
  const Layout* permuted = nullptr;
  int rank = 0;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      rank = std::max(rank, operand.shape.rank());
      if (!operand.layout.plain()) permuted = &operand.layout;
    }
  }
  if (permuted == nullptr) return physical;
  if (!permuted->blocks.empty() || static_cast<int>(permuted->order.size()) != rank) return std::nullopt;
  for (auto* operands : {&physical.call.inputs, &physical.call.outputs}) {
    for (OperandType& operand : *operands) {
      if (!operand.present()) continue;
      const Shape wide = Widened(operand.shape, rank);
      if (operand.shape.rank() < rank && !operand.layout.plain()) return std::nullopt;
      if (!SameMemoryOrder(operand.layout, *permuted, wide)) return std::nullopt;
      operand.layout = {};
      operand.shape = {};
      for (int dim : permuted->order) operand.shape.push_back(wide[dim]);
    }
  }
  physical.axis.resize(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) physical.axis[static_cast<size_t>(permuted->order[static_cast<size_t>(i)])] = i;
  return physical;
}

}  // namespace gradloom

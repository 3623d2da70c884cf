#include "kernels/cpu/convolution/window_table.h"

#include "kernels/catalog/physical.h"
#include "kernels/cpu/operands.h"
#include "kernels/reference/spatial.h"

namespace gradloom {
namespace {

constexpr int64_t kPointsPerThread = 1 << 13;
constexpr int64_t kMaxPoints = int64_t{1} << 24;  // of a table: 64 MiB

// Operands must be float32, and all row-major or all channels-last.
std::string RejectsOperands(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && operand.dtype != DType::kFloat32) return std::string(DTypeName(operand.dtype));
    }
  }
  const Layout last = ChannelsLast(call.inputs[0].shape.rank());
  if (std::string why = RejectsLayouts(call); why.empty()) return "";
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.shape.rank() != call.inputs[0].shape.rank() || !SameMemoryOrder(operand.layout, last, operand.shape)) {
        return "layout " + operand.layout.ToString();
      }
    }
  }
  return "";
}

// Requirements of both directions: the points of a plane fit into 32 bits, and Y has the extents that the windows of X give.
std::string RejectsWindows(const KernelCall& call, const Shape& x, const Shape& y) {
  if (x.rank() < 3 || x.rank() > 5) return "not one to three spatial dimensions";
  const std::vector<int64_t> kernel = call.attributes.Ints("kernel_shape");
  if (static_cast<int>(kernel.size()) != x.rank() - 2 || y.rank() != x.rank()) return "kernel_shape of another rank";
  if (x[0] != y[0] || x[1] != y[1]) return "another batch or other channels";
  int64_t points = 1;
  for (int axis = 2; axis < x.rank(); ++axis) {
    const int64_t width = kernel[static_cast<size_t>(axis - 2)];
    if (width < 1 || y[axis] < 0 || x[axis] > kMaxPoints || y[axis] > kMaxPoints || width > kMaxPoints) return "large windows";
    if (__builtin_mul_overflow(points, y[axis] * width, &points) || points > kMaxPoints) return "large windows";
  }
  return Product(x, 2, x.rank()) > kMaxPoints ? "large planes" : "";
}

}  // namespace

WindowTable::WindowTable(const KernelCall& call, const Shape& x, const Shape& y)
    : images(x[0]), channels(x[1]), innermost(!RejectsLayouts(call).empty()), row(y[y.rank() - 1]) {
  const Volume in = Volume::Of(x), out = Volume::Of(y);
  const Window3 w = Window3::Of(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")));
  inputs = in.points();
  outputs = out.points();
  first.reserve(static_cast<size_t>(outputs) + 1);
  ForEachPoint(w, in, out, [&](int64_t window, int64_t point) {
    while (static_cast<int64_t>(first.size()) <= window) first.push_back(static_cast<int32_t>(points.size()));
    points.push_back(static_cast<int32_t>(point));
  });
  while (static_cast<int64_t>(first.size()) <= outputs) first.push_back(static_cast<int32_t>(points.size()));
}

int64_t WindowTable::Step() const {
  if (outputs == 0 || points.empty()) return 0;
  const int64_t by = row > 1 && !Empty(0) && !Empty(1) ? points[static_cast<size_t>(first[1])] - points[0] : 1;
  for (int64_t o = 0; o < outputs; ++o) {
    const auto at = static_cast<size_t>(o), before = at - 1;
    if (Empty(at)) return 0;
    if (o % row == 0) continue;
    if (taps(at) != taps(before)) return 0;
    for (int64_t t = 0; t < taps(at); ++t) {
      if (points[static_cast<size_t>(first[at] + t)] != points[static_cast<size_t>(first[before] + t)] + by) return 0;
    }
  }
  return by;
}

int WindowTable::Threads(const KernelCall& call) const {
  return ThreadsFor(images * channels * static_cast<int64_t>(points.size()), kPointsPerThread, call.threads);
}

std::string RejectsPooling(const KernelCall& call, const Shape& x, const Shape& y) {
  if (std::string why = RejectsOperands(call); !why.empty()) return why;
  return RejectsWindows(call, x, y);
}

}  // namespace gradloom

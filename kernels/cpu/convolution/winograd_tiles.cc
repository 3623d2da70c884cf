#include "kernels/cpu/convolution/winograd_tiles.h"

#include <algorithm>
#include <utility>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/window_axis.h"
#include "kernels/cpu/convolution/winograd.h"
#include "kernels/cpu/operands.h"

namespace gradloom {
namespace {

// w[O, I, 3, 3] is stored as [O / lanes, 3, 3, I, lanes].
Layout FilterLayout() { return {.order = {0, 2, 3, 1}, .blocks = {{0, WinogradLanes()}}}; }

}  // namespace

WinogradExtents WinogradExtents::Of(const KernelCall& call) {
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  const auto [height, width] = WindowAxesOf(call.attributes, of.x->shape, of.y->shape, of.w->shape);
  return {of.x->shape[0], height.in, width.in, of.x->shape[1], height.out, width.out, of.y->shape[1], height.pad, width.pad};
}

WinogradExtents WinogradExtents::Transposed() const {
  return {images, y_height, y_width, y_channels, x_height, x_width, x_channels, 2 - top, 2 - left};
}

std::string RejectsWinogradShapes(const KernelCall& call) {
  if (call.op == "ConvTranspose") return "a transposed convolution";
  if (std::string why = RejectsElements(call); !why.empty()) return why;
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {of.x, of.w, of.y}) {
    if (operand->shape.rank() != 4) return "rank " + std::to_string(operand->shape.rank());
  }
  const Shape &x = of.x->shape, &y = of.y->shape, &w = of.w->shape;
  if (w[1] != x[1] || w[2] != 3 || w[3] != 3) return "groups, or other windows than 3 x 3";
  if (y[0] != x[0] || y[1] != w[0]) return "another batch, or other channels";
  if (call.op == "Conv" && HasInput(call, 2)) {
    const OperandType& bias = call.inputs[2];
    if (bias.shape != Shape{y[1]} || !bias.layout.plain()) return "bias";
  }
  const auto [height, width] = WindowAxesOf(call.attributes, x, y, w);
  for (const WindowAxis& axis : {height, width}) {
    if (axis.stride != 1 || axis.dilation != 1) return "strides or dilations";
    if (axis.pad < 0 || axis.pad > 2) return "other padding than of 0 to 2 points";
  }
  const int64_t lanes = WinogradLanes();
  if (x[1] % lanes != 0 || y[1] % lanes != 0) return "a number of channels that is not a multiple of the vector length";
  const WinogradExtents n = WinogradExtents::Of(call);
  const WinogradExtents computed = call.op == "ConvGradInput" ? n.Transposed() : n;
  // Transforming a filter takes as long as its products with kTilesOfFilters tiles, and transforming tiles takes at most a fifth of the
  // time saved (docs/benchmarks.md, "Winograd convolutions").
  constexpr int64_t kTilesOfFilters = 40, kMinChannels = 32, kMaxFilters = 1 << 20;
  if (std::min(n.x_channels, n.y_channels) < kMinChannels) return "few channels";
  // Their planes would take 64 MiB or more.
  if (n.x_channels * n.y_channels > kMaxFilters) return "many filters";
  if (kWinogradPlanes * (computed.tiles() + kTilesOfFilters) > 8 * computed.images * computed.y_height * computed.y_width) {
    return "few points for the transforms";
  }
  return "";
}

std::string RejectsWinograd(const KernelCall& call) {
  if (std::string why = RejectsWinogradShapes(call); !why.empty()) return why;
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (const OperandType* operand : {of.x, of.y}) {
    if (!SameMemoryOrder(operand->layout, ChannelsLast(4), operand->shape)) return "layout " + operand->layout.ToString();
  }
  return SameMemoryOrder(of.w->layout, FilterLayout(), of.w->shape) ? "" : "weights " + of.w->layout.ToString();
}

bool PrefersWinograd(KernelCall& call) {
  if (!RejectsWinogradShapes(call).empty()) return false;
  SetConvolutionLayouts(call, FilterLayout());
  return true;
}

}  // namespace gradloom

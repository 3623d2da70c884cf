// Fourier transforms, and the weights that map spectra to mel bins.
#include "kernels/cuda/rows/signal.h"

#include <algorithm>

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string RejectsDft(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call), Unknown(call, {1, 2})}); !why.empty()) return why;
  const bool has_axis = NormalAxis(call.ConstantInts(2, {-2}).at(0), call.inputs[0].shape.rank()).has_value();
  return FirstOf({has_axis ? "" : "an axis out of range", TransformLength(call) > 0 ? "" : "a length of 0"});
}

std::string RejectsStft(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call), Unknown(call, {1, 3})}); !why.empty()) return why;
  const int64_t step = call.ConstantInts(1, {0}).at(0), length = TransformLength(call);
  const Shape &signal = call.inputs[0].shape, &frames = call.outputs[0].shape;
  if (step <= 0 || length <= 0) return "frames of no length";
  if (call.inputs.size() > 2 && call.inputs[2].present()) {
    if (std::string why = NotFloating(call, 2); !why.empty()) return why;
    if (call.inputs[2].shape.elements() != length) return "a window that does not fit the frames";
  }
  return frames[1] == 0 || (frames[1] - 1) * step + length <= signal[1] ? "" : "frames past the signal";
}

std::string RejectsMel(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!IsFloating(operand.dtype) && !IsInteger(operand.dtype)) return "elements of type " + std::string(DTypeName(operand.dtype));
    }
  }
  return Layouts(call);
}

constexpr int64_t kComplexBytes = 16;

// Transforms of fewer points are not worth a second launch.
constexpr int64_t kFewPoints = 32;
constexpr int64_t kPointsAtATime = 1 << 20;

// The roots of unity, and the results of the first halves of the transforms.
int64_t TransformBytes(const KernelCall& call) {
  const int64_t n = TransformLength(call);
  int64_t points = n;
  if (SplitTransform(n).rows > 1) {
    const Shape& to = call.outputs[0].shape;
    const int64_t axis = call.op == "STFT" ? 2 : NormalAxis(call.ConstantInts(2, {-2}).at(0), call.inputs[0].shape.rank()).value_or(0);
    const int64_t along = to[static_cast<int>(axis)] * to[to.rank() - 1];
    points += TransformsAtATime(along == 0 ? 0 : to.elements() / along, n) * n;
  }
  return points * kComplexBytes;
}

constexpr KernelRow kRows[] = {
    {.name = "cuda.DFT", .op = "DFT", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsDft, .scratch_bytes = TransformBytes},
    {.name = "cuda.MelWeightMatrix", .op = "MelWeightMatrix", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsMel},
    {.name = "cuda.STFT", .op = "STFT", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsStft, .scratch_bytes = TransformBytes},
};

}  // namespace

int64_t cuda_rows::TransformLength(const KernelCall& call) {
  if (call.op == "STFT") {
    const int64_t window = call.inputs.size() > 2 && call.inputs[2].present() ? call.inputs[2].shape.elements() : 0;
    return call.ConstantInts(3, {window}).at(0);
  }
  const bool to_real = call.attributes.Int("inverse", 0) != 0 && call.attributes.Int("onesided", 0) != 0;
  const Shape& of = to_real ? call.outputs[0].shape : call.inputs[0].shape;
  const auto axis = NormalAxis(call.ConstantInts(2, {-2}).at(0), of.rank());
  return call.ConstantInts(1, {axis ? of[*axis] : 0}).at(0);
}

cuda_rows::TransformSplit cuda_rows::SplitTransform(int64_t length) {
  TransformSplit split{1, length};
  if (length < kFewPoints) return split;
  for (int64_t rows = 2; rows * rows <= length; ++rows) {
    if (length % rows == 0) split = {rows, length / rows};
  }
  return split;
}

int64_t cuda_rows::TransformsAtATime(int64_t lines, int64_t length) {
  return std::min(lines, std::max<int64_t>(1, kPointsAtATime / length));
}

std::span<const KernelRow> CudaSignalRows() { return kRows; }

}  // namespace gradloom

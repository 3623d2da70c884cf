// Data movement without arithmetic.
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// Layouts that permute dimensions are accessed through strides.
std::string Blocks(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.layout.blocks.empty()) return "layout " + operand.layout.ToString();
    }
  }
  return "";
}

std::string RejectsStrided(const KernelCall& call) { return FirstOf({Blocks(call), RankAbove(call, kMaxAxes)}); }

std::string RejectsSlice(const KernelCall& call) { return FirstOf({RejectsStrided(call), Unknown(call, {1, 2, 3, 4})}); }

std::string RejectsSplit(const KernelCall& call) { return FirstOf({RejectsStrided(call), Unknown(call, {1})}); }

std::string RejectsPlain(const KernelCall& call) { return FirstOf({Layouts(call), RankAbove(call, kMaxAxes)}); }

// A repeated axis counts twice.
std::string RejectsTile(const KernelCall& call) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  int axes = 0;
  for (int axis = 0; axis < from.rank(); ++axis) axes += (from[axis] != 1 ? 1 : 0) + (from[axis] != to[axis] ? 1 : 0);
  return FirstOf({Layouts(call), axes > kMaxAxes ? "more than " + std::to_string(kMaxAxes) + " axes and repeats" : ""});
}

std::string RejectsPermuted(const KernelCall& call) { return PhysicalOf(call) ? "" : "operands in different layouts"; }

std::string RejectsPad(const KernelCall& call) {
  return FirstOf({RejectsPermuted(call), RankAbove(call, kMaxAxes), Unknown(call, {1, 3})});
}

std::string RejectsPadGrad(const KernelCall& call) {
  return FirstOf({RejectsPermuted(call), RankAbove(call, kMaxAxes), Unknown(call, {1, 2}), NotFloating(call)});
}

std::string RejectsTrilu(const KernelCall& call) { return FirstOf({Layouts(call), Unknown(call, {1})}); }

// Tensors made from shapes and attributes: the layouts of inputs do not matter.
std::string RejectsMade(const KernelCall& call) {
  const OperandType& out = call.outputs[0];
  return out.layout.plain() ? "" : "layout " + out.layout.ToString();
}

std::string RejectsReorder(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (from.dtype != to.dtype || from.shape != to.shape) return "operands of different types";
  return RankAbove(call, kMaxAxes);
}

// Into words of 16-bit elements, such as the channels of images: a cast that is also a reorder. Other casts are pointwise programs.
std::string RejectsCastIntoWords(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (from.dtype != DType::kFloat32 || !Is16BitFloat(to.dtype)) return "operands of types other than float32 and one of 16 bits";
  if (from.shape != to.shape || !from.layout.blocks.empty() || !HasWordBlock(to)) return "layout " + to.layout.ToString();
  return RankAbove(call, kMaxAxes);
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = rejects};
}

constexpr KernelRow Own(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = "gradloom", .device = DeviceKind::kCuda, .rejects = rejects};
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow InPlace(KernelRow row) {
  row.may_alias = kInPlace;
  return row;
}

constexpr KernelRow kRows[] = {
    InPlace(Row("cuda.BitCast", "BitCast", RejectsView)),
    Row("cuda.CastIntoWords", "Cast", RejectsCastIntoWords),
    Row("cuda.Concat", "Concat", RejectsStrided),
    Row("cuda.ConstantOfShape", "ConstantOfShape", RejectsMade),
    Row("cuda.DepthToSpace", "DepthToSpace", RejectsPlain),
    Row("cuda.Expand", "Expand", RejectsStrided),
    Row("cuda.EyeLike", "EyeLike", RejectsMade),
    InPlace(Row("cuda.Flatten", "Flatten", RejectsView)),
    InPlace(Row("cuda.Identity", "Identity", RejectsView)),
    Row("cuda.Pad", "Pad", RejectsPad),
    Row("cuda.Range", "Range", RejectsMade),
    InPlace(Row("cuda.Reshape", "Reshape", RejectsView)),
    Row("cuda.ReverseSequence", "ReverseSequence", Layouts),
    Row("cuda.Shape", "Shape", RejectsMade),
    Row("cuda.Size", "Size", RejectsMade),
    Row("cuda.Slice", "Slice", RejectsSlice),
    Row("cuda.SpaceToDepth", "SpaceToDepth", RejectsPlain),
    Row("cuda.Split", "Split", RejectsSplit),
    InPlace(Row("cuda.Squeeze", "Squeeze", RejectsView)),
    Row("cuda.Tile", "Tile", RejectsTile),
    Row("cuda.Transpose", "Transpose", RejectsStrided),
    InPlace(Row("cuda.Trilu", "Trilu", RejectsTrilu)),
    InPlace(Row("cuda.Unsqueeze", "Unsqueeze", RejectsView)),
    InPlace(Own("cuda.gradloom.Copy", "Copy", RejectsView)),
    Own("cuda.gradloom.PadGrad", "PadGrad", RejectsPadGrad),
    Own("cuda.gradloom.Reorder", "Reorder", RejectsReorder),
    Own("cuda.gradloom.SliceGrad", "SliceGrad", RejectsSlice),
};

}  // namespace

std::span<const KernelRow> CudaMoveRows() { return kRows; }

}  // namespace gradloom

// Results with as many elements as the data of a step determines.
#include "kernels/cuda/rows/extents.h"

#include "kernels/catalog/operands.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NotPlainElements(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  return IsFloating(dtype) || IsInteger(dtype) || dtype == DType::kBool ? "" : "elements of type " + std::string(DTypeName(dtype));
}

std::string RejectsNonZero(const KernelCall& call) { return FirstOf({Layouts(call), NotPlainElements(call), RankAbove(call, kMaxAxes)}); }

std::string RejectsUnique(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  const bool fits = call.attributes.has("axis") ? NormalAxis(call.attributes.Int("axis", 0), rank).has_value() : rank == 1;
  return FirstOf({Layouts(call), NotPlainElements(call), fits ? "" : "an axis out of range"});
}

std::string RejectsSuppression(const KernelCall& call) {
  for (size_t i : {0, 1, 3, 4}) {
    if (HasInput(call, i) && call.inputs[i].dtype != DType::kFloat32) return "operands other than float32";
  }
  const Shape &boxes = call.inputs[0].shape, &scores = call.inputs[1].shape;
  if (boxes.rank() != 3 || scores.rank() != 3) return "rank";
  const bool fits = boxes[2] == 4 && boxes[0] == scores[0] && boxes[1] == scores[2];
  return FirstOf({Layouts(call), fits ? "" : "scores that do not fit the boxes"});
}

std::string RejectsRepack(const KernelCall& call) {
  for (size_t i : {1, 2}) {
    if (call.inputs[i].dtype != DType::kInt64) return "extents of type " + std::string(DTypeName(call.inputs[i].dtype));
  }
  return FirstOf({Layouts(call), RankAbove(call, kMaxAxes)});
}

int64_t NonZeroBytes(const KernelCall& call) { return CountedParts{call.inputs[0].shape.elements()}.totals() * 8; }

int64_t UniqueBytes(const KernelCall& call) {
  const SlicesAlong slices(call);
  return (SlicesAlong::kLists * slices.count + CountedParts{slices.count}.totals()) * 8;
}

int64_t SuppressionBytes(const KernelCall& call) { return SuppressionSizes(call).bytes(); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&),
                        int64_t (*scratch_bytes)(const KernelCall&) = nullptr) {
  return {.name = name, .op = op, .domain = "gradloom", .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = scratch_bytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.gradloom.NonMaxSuppression", "NonMaxSuppression", RejectsSuppression, SuppressionBytes),
    Row("cuda.gradloom.NonZero", "NonZero", RejectsNonZero, NonZeroBytes),
    Row("cuda.gradloom.Repack", "Repack", RejectsRepack),
    Row("cuda.gradloom.SameExtent", "SameExtent", Layouts),
    Row("cuda.gradloom.Unique", "Unique", RejectsUnique, UniqueBytes),
};

}  // namespace

cuda_rows::SlicesAlong::SlicesAlong(const KernelCall& call) {
  const Shape& x = call.inputs[0].shape;
  const int axis = NormalAxis(call.attributes.Int("axis", 0), x.rank()).value_or(0);
  outer = inner = 1, count = x[axis];
  for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : x[i];
}

cuda_rows::SuppressionSizes::SuppressionSizes(const KernelCall& call) {
  const Shape& scores = call.inputs[1].shape;
  batch = scores[0], classes = scores[1], boxes = scores[2];
  bound = call.attributes.Int("bound", 0);
}

std::span<const KernelRow> CudaExtentRows() { return kRows; }

}  // namespace gradloom

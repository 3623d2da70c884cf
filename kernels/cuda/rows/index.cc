// Elements by index.
#include <algorithm>

#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scattering.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

int AxisAttribute(const KernelCall& call, int64_t absent, const Shape& shape) {
  return NormalAxis(call.attributes.Int("axis", absent), shape.rank()).value_or(-1);
}

std::string NoIndices(const KernelCall& call, size_t input) {
  const DType dtype = call.inputs[input].dtype;
  return dtype == DType::kInt64 || dtype == DType::kInt32 ? "" : "indices of type " + std::string(DTypeName(dtype));
}

std::string NoNumbers(const KernelCall& call, size_t input = 0) {
  const DType dtype = call.inputs[input].dtype;
  return IsFloating(dtype) || IsInteger(dtype) ? "" : "elements of type " + std::string(DTypeName(dtype));
}

std::string NoAxis(const KernelCall& call, int64_t absent, const Shape& shape) {
  return AxisAttribute(call, absent, shape) < 0 ? "an axis out of range" : "";
}

std::string RejectsGather(const KernelCall& call) {
  return FirstOf({Layouts(call), NoIndices(call, 1), NoAxis(call, 0, call.inputs[0].shape)});
}

std::string RejectsGatherGrad(const KernelCall& call) {
  return FirstOf({Layouts(call), NoIndices(call, 0), NoNumbers(call, 1), NoAxis(call, 0, call.outputs[0].shape)});
}

// The indices may exceed the extents of the data only along the axis.
std::string RejectsElements(const KernelCall& call) {
  const Shape &data = call.inputs[0].shape, &indices = call.inputs[1].shape;
  const int axis = AxisAttribute(call, 0, data);
  bool fits = indices.rank() == data.rank() && axis >= 0;
  for (int a = 0; fits && a < data.rank(); ++a) fits = a == axis || indices[a] <= data[a];
  return FirstOf({Layouts(call), NoIndices(call, 1), RankAbove(call, kMaxAxes), fits ? "" : "indices that do not fit the data"});
}

std::string RejectsScatterElements(const KernelCall& call) {
  return FirstOf({RejectsElements(call), call.inputs[1].shape == call.inputs[2].shape ? "" : "updates that do not fit the indices"});
}

// Index tuples into axes of `shape`.
std::string RejectsTuples(const KernelCall& call, const Shape& shape, size_t input) {
  const Shape& indices = call.inputs[input].shape;
  if (indices.rank() == 0) return "indices without an axis";
  const int64_t width = indices[indices.rank() - 1], batch_dims = call.attributes.Int("batch_dims", 0);
  bool fits = batch_dims >= 0 && width <= kMaxAxes && batch_dims + width <= shape.rank() && batch_dims < indices.rank();
  for (int axis = 0; fits && axis < batch_dims; ++axis) fits = indices[axis] == shape[axis];
  return FirstOf({Layouts(call), NoIndices(call, input), fits ? "" : "index tuples that do not fit the data"});
}

std::string RejectsGatherNd(const KernelCall& call) { return RejectsTuples(call, call.inputs[0].shape, 1); }

std::string RejectsGatherNdGrad(const KernelCall& call) {
  return FirstOf({RejectsTuples(call, call.outputs[0].shape, 0), NoNumbers(call, 1)});
}

std::string RejectsScatterNd(const KernelCall& call) {
  if (std::string why = RejectsTuples(call, call.inputs[0].shape, 1); !why.empty()) return why;
  const Scattering s = ScatteringOf(call);
  return call.inputs[2].shape.elements() == s.count * s.inner ? "" : "updates that do not fit the indices";
}

std::string RejectsOneHot(const KernelCall& call) {
  return FirstOf({Layouts(call), NoNumbers(call), NoAxis(call, -1, call.outputs[0].shape)});
}

std::string RejectsArg(const KernelCall& call) { return FirstOf({Layouts(call), NoNumbers(call), NoAxis(call, 0, call.inputs[0].shape)}); }

std::string RejectsTopK(const KernelCall& call) {
  return FirstOf({Layouts(call), NoNumbers(call), Unknown(call, {1}), NoAxis(call, -1, call.inputs[0].shape)});
}

std::string RejectsCompress(const KernelCall& call) {
  return FirstOf({Layouts(call), call.attributes.has("axis") ? NoAxis(call, 0, call.inputs[0].shape) : ""});
}

std::string RejectsNonZero(const KernelCall& call) { return FirstOf({Layouts(call), RankAbove(call, kMaxAxes)}); }

int64_t ScatterBytes(const KernelCall& call) {
  const bool lines = call.op == "ScatterElements" && ScattersByLines(call);
  return lines ? 0 : ScatteringOf(call).Bytes();
}

// The indices of the selected slices.
int64_t CompressBytes(const KernelCall& call) {
  const Shape& shape = call.outputs[0].shape;
  return shape[call.attributes.has("axis") ? AxisAttribute(call, 0, shape) : 0] * 8;
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&),
                        int64_t (*scratch_bytes)(const KernelCall&) = nullptr) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = scratch_bytes};
}

constexpr KernelRow Own(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = "gradloom", .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = ScatterBytes};
}

constexpr Aliasing kData[] = {{0, 0}};

constexpr KernelRow InPlace(KernelRow row) {
  row.may_alias = kData;
  return row;
}

constexpr KernelRow kRows[] = {
    Row("cuda.ArgMax", "ArgMax", RejectsArg),
    Row("cuda.ArgMin", "ArgMin", RejectsArg),
    Row("cuda.Compress", "Compress", RejectsCompress, CompressBytes),
    Row("cuda.Gather", "Gather", RejectsGather),
    Row("cuda.GatherElements", "GatherElements", RejectsElements),
    Row("cuda.GatherND", "GatherND", RejectsGatherNd),
    Row("cuda.NonZero", "NonZero", RejectsNonZero),
    Row("cuda.OneHot", "OneHot", RejectsOneHot),
    InPlace(Row("cuda.ScatterElements", "ScatterElements", RejectsScatterElements, ScatterBytes)),
    InPlace(Row("cuda.ScatterND", "ScatterND", RejectsScatterNd, ScatterBytes)),
    Row("cuda.TopK", "TopK", RejectsTopK),
    Own("cuda.gradloom.GatherGrad", "GatherGrad", RejectsGatherGrad),
    Own("cuda.gradloom.GatherNDGrad", "GatherNDGrad", RejectsGatherNdGrad),
};

}  // namespace

Scattering ScatteringOf(const KernelCall& call) {
  Scattering s;
  const OperandType& out = call.outputs[0];
  const Shape& shape = out.shape;
  s.total_bytes = std::max<int64_t>(DTypeBytes(out.dtype), 4);
  if (call.op == "GatherGrad") {
    const int axis = AxisAttribute(call, 0, shape);
    s.outer = Product(shape, 0, axis);
    s.count = call.inputs[0].shape.elements();
    s.extent = shape[axis];
    s.inner = Product(shape, axis + 1, shape.rank());
  } else if (call.op == "ScatterElements") {
    s.count = call.inputs[1].shape.elements();
    s.extent = shape.elements();
  } else {
    const Shape& indices = call.inputs[call.op == "GatherNDGrad" ? 0 : 1].shape;
    const int last = indices.rank() - 1;
    const int rows = static_cast<int>(call.attributes.Int("batch_dims", 0) + indices[last]);
    s.count = Product(indices, 0, last);
    s.extent = Product(shape, 0, rows);
    s.inner = Product(shape, rows, shape.rank());
  }
  return s;
}

bool ScattersByLines(const KernelCall& call) {
  constexpr int64_t kManyLines = 4096, kShortLine = 64;
  const std::string reduction = call.attributes.String("reduction", "none");
  if (Is16BitFloat(call.outputs[0].dtype) && (reduction == "add" || reduction == "mul")) return false;
  const Shape& indices = call.inputs[1].shape;
  const int64_t length = indices[AxisAttribute(call, 0, indices)];
  return length <= kShortLine || indices.elements() / length >= kManyLines;
}

std::span<const KernelRow> CudaIndexRows() { return kRows; }

}  // namespace gradloom

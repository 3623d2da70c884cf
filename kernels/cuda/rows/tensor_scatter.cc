// Writes the rows of an update to a cache, at a position per sample, and reads them again; inserts a row into a tensor.
#include "kernels/catalog/operands.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call, const Shape& update, size_t indices) {
  const Shape& cache = call.inputs[0].shape;
  const auto axis = NormalAxis(call.attributes.Int("axis", -2), cache.rank());
  bool fits = axis && *axis > 0 && cache.rank() == update.rank() && update[*axis] <= cache[*axis];
  for (int i = 0; fits && i < cache.rank(); ++i) fits = i == *axis || cache[i] == update[i];
  if (!fits) return "an update that does not fit the cache";
  if (HasInput(call, indices)) {
    const OperandType& places = call.inputs[indices];
    if (places.dtype != DType::kInt64 && places.dtype != DType::kInt32) return "places of type " + std::string(DTypeName(places.dtype));
    if (places.shape.elements() != cache[0]) return "not one position for each sample";
  }
  return Layouts(call);
}

std::string RejectsScatter(const KernelCall& call) { return Rejects(call, call.inputs[1].shape, 2); }
std::string RejectsGather(const KernelCall& call) { return Rejects(call, call.outputs[0].shape, 1); }

std::string RejectsSetRow(const KernelCall& call) {
  const OperandType &all = call.inputs[0], &row = call.inputs[2];
  const bool fits = all.shape.rank() > 0 && row.dtype == all.dtype && row.shape.elements() * all.shape[0] == all.shape.elements();
  return FirstOf({Layouts(call), fits ? "" : "a row that does not fit"});
}

constexpr Aliasing kCache[] = {{0, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.TensorScatter",
     .op = "TensorScatter",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = RejectsScatter,
     .may_alias = kCache},
    {.name = "cuda.gradloom.SetRow",
     .op = "SetRow",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsSetRow,
     .may_alias = kCache},
    {.name = "cuda.gradloom.TensorGather",
     .op = "TensorGather",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsGather},
};

}  // namespace

std::span<const KernelRow> CudaTensorScatterRows() { return kRows; }

}  // namespace gradloom

// Running sums and products along a constant axis.
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scratch.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string RejectsRunning(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  return FirstOf({Layouts(call), IsFloating(dtype) || IsInteger(dtype) ? "" : "elements that are not numeric", Unknown(call, {1})});
}

std::string RejectsGrad(const KernelCall& call) { return FirstOf({Layouts(call), NotFloating(call), Unknown(call, {2})}); }

// A total of eight bytes per part and line.
int64_t Totals(const KernelCall& call) {
  const Shape& shape = call.inputs[0].shape;
  const std::vector<int64_t> axes = call.ConstantInts(1);
  const auto axis = axes.size() == 1 ? NormalAxis(axes[0], shape.rank()) : std::nullopt;
  if (!axis) throw Error(ErrorCode::kAttr, call.op + ": the axis is outside a tensor of rank " + std::to_string(shape.rank()));
  const int64_t extent = shape[*axis], lines = shape.elements() / std::max<int64_t>(extent, 1);
  const int64_t parts = PartsOfLines(lines, extent);
  return parts > 1 ? lines * parts * 8 : 0;
}

// A double per element: the product of the previous ones.
int64_t Products(const KernelCall& call) { return call.inputs[0].shape.elements() * 8; }

// The thread that writes an element has read the input element at the same position before.
constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow Running(std::string_view name, std::string_view op) {
  return {.name = name,
          .op = op,
          .domain = "",
          .device = DeviceKind::kCuda,
          .rejects = RejectsRunning,
          .may_alias = kInPlace,
          .scratch_bytes = Totals};
}

constexpr KernelRow kRows[] = {
    Running("cuda.CumSum", "CumSum"),
    Running("cuda.CumProd", "CumProd"),
    {.name = "cuda.gradloom.CumProdGrad",
     .op = "CumProdGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsGrad,
     .scratch_bytes = Products},
};

}  // namespace

std::span<const KernelRow> CudaScanRows() { return kRows; }

}  // namespace gradloom

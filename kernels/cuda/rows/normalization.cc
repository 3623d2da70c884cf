// Normalization over rows, groups of channels, neighboring channels and axes.
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/slices.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

constexpr int64_t kDouble = sizeof(double);

template <int kX>
std::string Rejects(const KernelCall& call) {
  return FirstOf({Layouts(call), NotFloating(call, kX)});
}

template <int kX>
std::string RejectsWide(const KernelCall& call) {
  return FirstOf({Rejects<kX>(call), RankAbove(call, kMaxAxes)});
}

// For other types, the cast remains a node of its own.
std::string RejectsCast(const KernelCall& call) {
  if (call.inputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.inputs[0].dtype));
  return RejectsWide<0>(call);
}

// Whether the gradient of the scale or of the bias is wanted.
bool WantsSums(const KernelCall& call) {
  return (call.outputs.size() > 1 && call.outputs[1].present()) || (call.outputs.size() > 2 && call.outputs[2].present());
}

// Two sums per column and run of rows, held or not; or three numbers per row, followed by two sums per column and chunk. If no sums are
// wanted, only three numbers per row.
int64_t RowGradScratch(const KernelCall& call) {
  const cuda::Columns shape = cuda::NormalizedRows(call, call.inputs[1].shape);
  const cuda::RowRuns runs(shape);
  const bool sums = WantsSums(call);
  if (cuda::HoldsRows(call.inputs[1], shape, call.inputs[2], {})) return sums ? 2 * 4 * cuda::HeldRows(shape).partials() : 0;
  if (!sums) return kDouble * 3 * shape.rows;
  const int64_t number = call.inputs[1].dtype == DType::kFloat64 ? 8 : 4;
  return runs.serve(number) ? 2 * number * runs.partials() : kDouble * (3 * shape.rows + 2 * shape.partials());
}

// Of gradloom.SumLayerNorm and its gradient: rows that are held in registers, so that the sum is in memory only where something else reads
// it.
template <int kX, int kScale>
std::string RejectsHeld(const KernelCall& call) {
  if (std::string why = Layouts(call); !why.empty()) return why;
  constexpr int kBias = kScale + 1;
  const bool has_bias = kX == 0 && call.inputs.size() > kBias;
  const cuda::Columns rows = cuda::NormalizedRows(call, call.inputs[kX].shape);
  if (cuda::HoldsRows(call.inputs[kX], rows, call.inputs[kScale], has_bias ? call.inputs[kBias] : OperandType())) return "";
  return "rows of " + std::to_string(rows.columns) + " elements";
}

// The operand may be normalized before the sum.
std::string RejectsSum(const KernelCall& call) {
  if (std::string why = RejectsHeld<0, 2>(call); !why.empty() || call.inputs.size() <= 4) return why;
  const cuda::Columns rows = cuda::NormalizedRows(call, call.inputs[0].shape);
  const OperandType bias = call.inputs.size() > 5 ? call.inputs[5] : OperandType();
  return cuda::HoldsRows(call.inputs[0], rows, call.inputs[4], bias) ? "" : "a scale or a bias that is no row of float32";
}

int64_t SumGradScratch(const KernelCall& call) {
  return WantsSums(call) ? 2 * 4 * cuda::HeldRows(cuda::NormalizedRows(call, call.inputs[2].shape)).partials() : 0;
}

int64_t GroupScratch(const KernelCall& call) { return kDouble * cuda::ChannelGroups(call).forward_numbers(); }
int64_t GroupGradScratch(const KernelCall& call) { return kDouble * cuda::ChannelGroups(call).backward_numbers(); }

// One number per element.
int64_t ResponseScratch(const KernelCall& call) { return kDouble * call.inputs[1].shape.elements(); }

constexpr Aliasing kInPlace[] = {{0, 0}};
constexpr Aliasing kGradInPlace[] = {{0, 0}, {0, 1}};
// A thread reads its elements of a held row before it writes any.
constexpr Aliasing kSumInPlace[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 1}};
constexpr Aliasing kSumGradInPlace[] = {{0, 4}, {0, 1}, {0, 0}, {0, 2}, {3, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.LayerNormalization",
     .op = "LayerNormalization",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = RejectsWide<0>,
     .may_alias = kInPlace},
    {.name = "cuda.gradloom.LayerNormCast",
     .op = "LayerNormCast",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsCast,
     .may_alias = kInPlace},
    {.name = "cuda.gradloom.LayerNormGrad",
     .op = "LayerNormGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsWide<1>,
     .scratch_bytes = RowGradScratch},
    {.name = "cuda.gradloom.SumLayerNorm",
     .op = "SumLayerNorm",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsSum,
     .may_alias = kSumInPlace},
    {.name = "cuda.gradloom.SumLayerNormGrad",
     .op = "SumLayerNormGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsHeld<2, 3>,
     .may_alias = kSumGradInPlace,
     .scratch_bytes = SumGradScratch},
    {.name = "cuda.RMSNormalization",
     .op = "RMSNormalization",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = RejectsWide<0>,
     .may_alias = kInPlace},
    {.name = "cuda.gradloom.RmsNormGrad",
     .op = "RmsNormGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsWide<1>,
     .scratch_bytes = RowGradScratch},
    {.name = "cuda.GroupNormalization",
     .op = "GroupNormalization",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<0>,
     .may_alias = kInPlace,
     .scratch_bytes = GroupScratch},
    {.name = "cuda.InstanceNormalization",
     .op = "InstanceNormalization",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<0>,
     .may_alias = kInPlace,
     .scratch_bytes = GroupScratch},
    {.name = "cuda.gradloom.GroupNormGrad",
     .op = "GroupNormGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1>,
     .may_alias = kGradInPlace,
     .scratch_bytes = GroupGradScratch},
    {.name = "cuda.MeanVarianceNormalization",
     .op = "MeanVarianceNormalization",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = RejectsWide<0>,
     .may_alias = kInPlace},
    {.name = "cuda.LRN", .op = "LRN", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects<0>},
    {.name = "cuda.gradloom.LrnGrad",
     .op = "LrnGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects<1>,
     .may_alias = kInPlace,
     .scratch_bytes = ResponseScratch},
};

}  // namespace

std::span<const KernelRow> CudaNormalizationRows() { return kRows; }

}  // namespace gradloom

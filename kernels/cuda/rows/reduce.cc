// Reductions over constant axes.
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scratch.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace cuda_rows {
namespace {

std::vector<bool> ReducedAxes(const KernelCall& call, int rank) {
  const std::vector<int64_t> axes = call.ConstantInts(1);
  const bool all = axes.empty() && call.attributes.Int("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(static_cast<size_t>(rank), all);
  for (int64_t axis : axes) {
    const auto normal = NormalAxis(axis, rank);
    if (!normal)
      throw Error(ErrorCode::kAttr, call.op + ": axis " + std::to_string(axis) + " is outside a tensor of rank " + std::to_string(rank));
    reduced[static_cast<size_t>(*normal)] = true;
  }
  return reduced;
}

bool InnermostIsReduced(const std::vector<bool>& reduced, const Shape& shape) {
  for (int axis = shape.rank(); axis-- > 0;) {
    if (shape[axis] != 1) return reduced[static_cast<size_t>(axis)];
  }
  return false;
}

}  // namespace

ReductionPlan PlanReduction(const KernelCall& call) {
  const OperandType& in = call.inputs[0];
  ReductionPlan plan{.reduced = ReducedAxes(call, in.shape.rank())};
  for (size_t axis = 0; axis < plan.reduced.size(); ++axis) {
    (plan.reduced[axis] ? plan.count : plan.outputs) *= in.shape[static_cast<int>(axis)];
  }
  plan.rows = plan.count > 32 && InnermostIsReduced(plan.reduced, in.shape);
  int64_t wanted = plan.rows ? 1 << 10 : 1 << 17, shortest = plan.rows ? 1 << 12 : 1 << 4;  // blocks or threads; elements
  // Integer reductions are rare: they use one block per output, whatever the axes.
  if (!IsFloating(in.dtype)) plan.rows = true, wanted = 1;
  plan.parts = std::clamp<int64_t>(wanted / std::max<int64_t>(plan.outputs, 1), 1, std::clamp<int64_t>(plan.count / shortest, 1, 1 << 14));
  return plan;
}

}  // namespace cuda_rows

namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NotNumbers(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  return IsFloating(dtype) || IsInteger(dtype) ? "" : "elements that are not numeric";
}

std::string Rejects(const KernelCall& call) {
  return FirstOf({Layouts(call), NotNumbers(call), RankAbove(call, kMaxAxes), Unknown(call, {1})});
}

// The maximum or minimum of bools is a bool.
std::string RejectsExtreme(const KernelCall& call) {
  const std::string numbers = call.inputs[0].dtype == DType::kBool ? "" : NotNumbers(call);
  return FirstOf({Layouts(call), numbers, RankAbove(call, kMaxAxes), Unknown(call, {1})});
}

// Eight bytes per total, or sixteen if it includes a maximum.
template <int64_t kTotalBytes>
int64_t Partials(const KernelCall& call) {
  const ReductionPlan plan = PlanReduction(call);
  return plan.parts > 1 ? plan.outputs * plan.parts * kTotalBytes : 0;
}

constexpr KernelRow Row(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Partials<8>};
}

constexpr KernelRow Extreme(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsExtreme, .scratch_bytes = Partials<8>};
}

constexpr KernelRow kRows[] = {
    Row("cuda.ReduceSum", "ReduceSum"),
    Row("cuda.ReduceMean", "ReduceMean"),
    Row("cuda.ReduceL1", "ReduceL1"),
    Row("cuda.ReduceL2", "ReduceL2"),
    Row("cuda.ReduceLogSum", "ReduceLogSum"),
    Row("cuda.ReduceProd", "ReduceProd"),
    Row("cuda.ReduceSumSquare", "ReduceSumSquare"),
    Extreme("cuda.ReduceMax", "ReduceMax"),
    Extreme("cuda.ReduceMin", "ReduceMin"),
    {.name = "cuda.ReduceLogSumExp",
     .op = "ReduceLogSumExp",
     .domain = "",
     .device = DeviceKind::kCuda,
     .rejects = Rejects,
     .scratch_bytes = Partials<16>},
};

}  // namespace

std::span<const KernelRow> CudaReduceRows() { return kRows; }

}  // namespace gradloom

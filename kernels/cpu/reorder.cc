// gradloom.Reorder: the same tensor in another layout.
#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

// A dimension, or a part of one, as a loop over memory: its index counts `step` of the dimension's elements.
struct Axis {
  int dim = 0;
  int64_t extent = 1, step = 1, stride = 0;
};

// From the outermost inwards.
std::vector<Axis> AxesOf(const Layout& layout, const Shape& shape) {
  std::vector<int64_t> block(static_cast<size_t>(shape.rank()), 1);
  for (const auto& [dim, size] : layout.blocks) block[static_cast<size_t>(dim)] *= size;
  std::vector<Axis> axes;
  for (int i = 0; i < shape.rank(); ++i) {
    const int dim = layout.order.empty() ? i : layout.order[static_cast<size_t>(i)];
    const int64_t step = block[static_cast<size_t>(dim)];
    axes.push_back({dim, shape[dim] / step, step, 0});
  }
  for (const auto& [dim, size] : layout.blocks) {
    block[static_cast<size_t>(dim)] /= size;
    axes.push_back({dim, size, block[static_cast<size_t>(dim)], 0});
  }
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    axes[i].stride = stride;
    stride *= axes[i].extent;
  }
  return axes;
}

// The axis of `axes` that holds the part of a dimension from `step` up to `end`; null where it is cut.
const Axis* Holding(const std::vector<Axis>& axes, int dim, int64_t step, int64_t end) {
  for (const Axis& axis : axes) {
    if (axis.dim == dim && step % axis.step == 0 && end <= axis.step * axis.extent && step < axis.step * axis.extent) return &axis;
  }
  return nullptr;
}

// Output elements in their order, with strides into the input; nullopt where the blocks of the two do not nest.
struct Walk {
  Shape extents;
  std::vector<int64_t> strides;
};

std::optional<Walk> WalkOf(const OperandType& from, const OperandType& to) {
  const std::vector<Axis> in = AxesOf(from.layout, from.shape), out = AxesOf(to.layout, to.shape);
  Walk walk;
  for (const Axis& axis : out) {
    // Cut where the input's axes begin.
    std::vector<int64_t> cuts{axis.step, axis.step * axis.extent};
    for (const Axis& other : in) {
      if (other.dim == axis.dim && other.step > cuts[0] && other.step < axis.step * axis.extent) cuts.push_back(other.step);
    }
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = cuts.size() - 1; i-- > 0;) {
      const Axis* at = Holding(in, axis.dim, cuts[i], cuts[i + 1]);
      if (axis.extent == 1) continue;
      if (at == nullptr || cuts[i + 1] % cuts[i] != 0) return std::nullopt;
      walk.extents.push_back(cuts[i + 1] / cuts[i]);
      walk.strides.push_back(cuts[i] / at->step * at->stride);
    }
  }
  return walk;
}

class Reorder : public Kernel {
 public:
  explicit Reorder(const KernelCall& call) : Reorder(call, *WalkOf(call.inputs[0], call.outputs[0])) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    GatherStrided(view_, dtype_, inputs[0], outputs[0], threads_);
  }

 private:
  Reorder(const KernelCall& call, const Walk& walk)
      : dtype_(call.inputs[0].dtype), threads_(call.threads), view_(walk.extents, walk.strides.data()) {}

  DType dtype_;
  int threads_;
  StridedView view_;
};

std::string Rejects(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (from.dtype != to.dtype || from.shape != to.shape) return "operands of different types";
  if (from.shape.elements() == 0) return "nothing to copy";
  for (const OperandType* operand : {&from, &to}) {
    if (operand->layout.Padded(operand->shape) != operand->shape) return "padding";
  }
  return WalkOf(from, to) ? "" : "blocks of " + from.layout.ToString() + " and " + to.layout.ToString() + " that do not nest";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Reorder", .op = "Reorder", .domain = "gradloom", .rejects = Rejects}, .make = MakeKernel<Reorder>},
};

}  // namespace

std::span<const CpuKernel> CpuReorderKernels() { return kKernels; }

}  // namespace gradloom

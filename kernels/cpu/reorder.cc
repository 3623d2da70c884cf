// gradloom.Reorder: the same tensor in another layout.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
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

// Where the elements of one dimension lie: an element's place is the sum of its indices' places.
std::vector<int64_t> PlacesOf(const std::vector<Axis>& axes, int dim, int64_t extent) {
  std::vector<int64_t> places(static_cast<size_t>(extent), 0);
  for (const Axis& axis : axes) {
    if (axis.dim != dim) continue;
    for (size_t i = 0; i < places.size(); ++i) places[i] += static_cast<int64_t>(i) / axis.step % axis.extent * axis.stride;
  }
  return places;
}

bool Pads(const OperandType& operand) { return operand.layout.Padded(operand.shape) != operand.shape; }

constexpr int64_t kElementsPerThread = 1 << 15;

// Between any two layouts of elements of this unsigned type's size, padding and all, by tables of places. Padding becomes zero.
template <typename Element>
class TableReorder : public Kernel {
 public:
  explicit TableReorder(const KernelCall& call) : bytes_(Pads(call.outputs[0]) ? call.outputs[0].bytes() : 0), threads_(call.threads) {
    const OperandType &from = call.inputs[0], &to = call.outputs[0];
    const std::vector<Axis> in = AxesOf(from.layout, from.layout.Padded(from.shape)), out = AxesOf(to.layout, to.layout.Padded(to.shape));
    // From the outermost of the output; the dimension of its innermost axis last, in runs.
    const int inner = out.empty() ? -1 : out.back().dim;
    std::vector<int> dims;
    for (size_t k = out.size(); k-- > 0;) {
      if (std::find(dims.begin(), dims.end(), out[k].dim) == dims.end()) dims.push_back(out[k].dim);
    }
    for (size_t k = dims.size(); k-- > 1;) {
      const int64_t extent = from.shape[dims[k]];
      outer_.push_back({extent, PlacesOf(in, dims[k], extent), PlacesOf(out, dims[k], extent)});
      rows_ *= extent;
    }
    const int64_t extent = inner < 0 ? 1 : from.shape[inner];
    MakeRuns(PlacesOf(in, inner, extent), PlacesOf(out, inner, extent));
    elements_ = from.shape.elements();
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* from = static_cast<const Element*>(inputs[0]);
    auto* to = static_cast<Element*>(outputs[0]);
    if (bytes_ > 0) std::memset(to, 0, static_cast<size_t>(bytes_));
    ParallelRanges(rows_, 1, ThreadsFor(elements_, kElementsPerThread, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) CopyRow(row, from, to);
    });
  }

 private:
  struct Dimension {
    int64_t extent;
    std::vector<int64_t> from, to;
  };
  // Elements next to each other in the output, `step` apart in the input.
  struct Stretch {
    int64_t from, to, count, step;
  };

  void MakeRuns(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    for (size_t i = 0; i < from.size(); ++i) {
      Stretch* last = runs_.empty() ? nullptr : &runs_.back();
      const int64_t step = last == nullptr ? 0 : from[i] - (last->from + (last->count - 1) * last->step);
      if (last != nullptr && to[i] == last->to + last->count && (last->count == 1 || step == last->step)) {
        last->step = step;
        ++last->count;
      } else {
        runs_.push_back({from[i], to[i], 1, 0});
      }
    }
  }

  void CopyRow(int64_t row, const Element* from, Element* to) const {
    for (size_t i = outer_.size(); i-- > 0;) {
      const auto index = static_cast<size_t>(row % outer_[i].extent);
      row /= outer_[i].extent;
      from += outer_[i].from[index];
      to += outer_[i].to[index];
    }
    for (const Stretch& run : runs_) {
      for (int64_t i = 0; i < run.count; ++i) to[run.to + i] = from[run.from + i * run.step];
    }
  }

  int64_t bytes_;  // to clear
  int threads_;
  std::vector<Dimension> outer_;  // from the outermost
  std::vector<Stretch> runs_;
  int64_t rows_ = 1, elements_ = 0;
};

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

std::string RejectsTypes(const OperandType& from, const OperandType& to) {
  if (from.dtype != to.dtype || from.shape != to.shape) return "operands of different types";
  return from.shape.elements() == 0 ? "nothing to copy" : "";
}

std::string Rejects(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (std::string why = RejectsTypes(from, to); !why.empty()) return why;
  if (Pads(from) || Pads(to)) return "padding";
  return WalkOf(from, to) ? "" : "blocks of " + from.layout.ToString() + " and " + to.layout.ToString() + " that do not nest";
}

std::string RejectsTable(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (std::string why = RejectsTypes(from, to); !why.empty()) return why;
  return DTypeBytes(from.dtype) == 4 || DTypeBytes(from.dtype) == 2 ? "" : std::string(DTypeName(from.dtype));
}

std::unique_ptr<Kernel> MakeTable(const KernelCall& call) {
  if (DTypeBytes(call.inputs[0].dtype) == 2) return std::make_unique<TableReorder<uint16_t>>(call);
  return std::make_unique<TableReorder<uint32_t>>(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Reorder", .op = "Reorder", .domain = "gradloom", .rejects = Rejects}, .make = MakeKernel<Reorder>},
    {.row = {.name = "cpu.TableReorder", .op = "Reorder", .domain = "gradloom", .rejects = RejectsTable}, .make = MakeTable},
};

}  // namespace

std::span<const CpuKernel> CpuReorderKernels() { return kKernels; }

}  // namespace gradloom

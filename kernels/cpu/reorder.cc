// gradloom.Reorder: the same tensor in another layout.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
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

// A box of elements with strides in two memories.
struct Box {
  std::vector<int64_t> extents, from, to;
  int64_t from_at = 0, to_at = 0;

  void Add(int64_t extent, int64_t from_stride, int64_t to_stride) {
    extents.push_back(extent);
    from.push_back(from_stride);
    to.push_back(to_stride);
  }
};

// The boxes between a tensor without blocks and one with at most one block a dimension: whole blocks, and what is left in
// the last one. `to_blocks`: into the blocked one.
std::vector<Box> BoxesOf(const OperandType& flat, const OperandType& blocked, bool to_blocks) {
  std::vector<int64_t> plain(static_cast<size_t>(flat.shape.rank()));
  for (const Axis& axis : AxesOf(flat.layout, flat.shape)) plain[static_cast<size_t>(axis.dim)] = axis.stride;
  const std::vector<Axis> axes = AxesOf(blocked.layout, blocked.layout.Padded(blocked.shape));
  std::vector<Box> boxes(1);
  const auto add = [&](Box& box, int64_t extent, int64_t flat_stride, int64_t blocked_stride) {
    box.Add(extent, to_blocks ? flat_stride : blocked_stride, to_blocks ? blocked_stride : flat_stride);
  };
  // From the outermost, so that the innermost loop runs along the blocked memory.
  for (const Axis& axis : axes) {
    const int64_t extent = blocked.shape[axis.dim], stride = plain[static_cast<size_t>(axis.dim)];
    const auto outer = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.dim == axis.dim; });
    if (&*outer != &axis) continue;  // a block, which was seen with its dimension
    const auto inner = std::find_if(outer + 1, axes.end(), [&](const Axis& a) { return a.dim == axis.dim; });
    if (inner == axes.end()) {
      for (Box& box : boxes) add(box, extent, stride, axis.stride);
      continue;
    }
    const int64_t whole = extent / axis.step, rest = extent % axis.step;
    std::vector<Box> parted;
    for (const Box& box : boxes) {
      if (whole > 0) {
        parted.push_back(box);
        add(parted.back(), whole, stride * axis.step, axis.stride);
        add(parted.back(), axis.step, stride, inner->stride);
      }
      if (rest > 0) {
        parted.push_back(box);
        (to_blocks ? parted.back().from_at : parted.back().to_at) += whole * axis.step * stride;
        (to_blocks ? parted.back().to_at : parted.back().from_at) += whole * axis.stride;
        add(parted.back(), rest, stride, inner->stride);
      }
    }
    boxes = std::move(parted);
  }
  return boxes;
}

constexpr int64_t kElementsPerThread = 1 << 15;

// The innermost loop goes along the smaller strides of `to`; rows of it are shared among threads.
class BoxCopy {
 public:
  explicit BoxCopy(Box box) : box_(std::move(box)) {
    std::vector<size_t> by_stride(box_.extents.size());
    for (size_t i = 0; i < by_stride.size(); ++i) by_stride[i] = i;
    std::stable_sort(by_stride.begin(), by_stride.end(), [&](size_t a, size_t b) { return box_.to[a] > box_.to[b]; });
    const Box old = box_;
    for (size_t i = 0; i < by_stride.size(); ++i) {
      box_.extents[i] = old.extents[by_stride[i]];
      box_.from[i] = old.from[by_stride[i]];
      box_.to[i] = old.to[by_stride[i]];
      if (i + 1 < by_stride.size()) rows_ *= box_.extents[i];
    }
  }

  void Run(const float* from, float* to, int threads) const {
    const size_t last = box_.extents.size() - 1;
    const int64_t n = box_.extents[last], in = box_.from[last], out = box_.to[last];
    ParallelRanges(rows_, 1, ThreadsFor(rows_ * n, kElementsPerThread, threads), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row, x = box_.from_at, y = box_.to_at;
        for (size_t i = last; i-- > 0;) {
          const int64_t index = rest % box_.extents[i];
          rest /= box_.extents[i];
          x += index * box_.from[i];
          y += index * box_.to[i];
        }
        for (int64_t i = 0; i < n; ++i) to[y + i * out] = from[x + i * in];
      }
    });
  }

 private:
  Box box_;
  int64_t rows_ = 1;
};

bool Pads(const OperandType& operand) { return operand.layout.Padded(operand.shape) != operand.shape; }

bool OneBlockADimension(const Layout& layout) {
  for (size_t i = 0; i < layout.blocks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (layout.blocks[i].dim == layout.blocks[j].dim) return false;
    }
  }
  return true;
}

// From or to blocks with padding, which becomes zero.
class PaddedReorder : public Kernel {
 public:
  explicit PaddedReorder(const KernelCall& call) : bytes_(Pads(call.outputs[0]) ? call.outputs[0].bytes() : 0), threads_(call.threads) {
    const OperandType &from = call.inputs[0], &to = call.outputs[0];
    const bool to_blocks = !to.layout.blocks.empty();
    for (Box& box : to_blocks ? BoxesOf(from, to, true) : BoxesOf(to, from, false)) copies_.emplace_back(std::move(box));
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    if (bytes_ > 0) std::memset(outputs[0], 0, static_cast<size_t>(bytes_));
    for (const BoxCopy& copy : copies_) copy.Run(static_cast<const float*>(inputs[0]), static_cast<float*>(outputs[0]), threads_);
  }

 private:
  int64_t bytes_;  // to clear
  int threads_;
  std::vector<BoxCopy> copies_;
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

std::string RejectsPadded(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (std::string why = RejectsTypes(from, to); !why.empty()) return why;
  if (from.dtype != DType::kFloat32) return std::string(DTypeName(from.dtype));
  if (!from.layout.blocks.empty() && !to.layout.blocks.empty()) return "blocks on both sides";
  return OneBlockADimension(from.layout) && OneBlockADimension(to.layout) ? "" : "blocks of blocks";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Reorder", .op = "Reorder", .domain = "gradloom", .rejects = Rejects}, .make = MakeKernel<Reorder>},
    {.row = {.name = "cpu.PaddedReorder", .op = "Reorder", .domain = "gradloom", .rejects = RejectsPadded},
     .make = MakeKernel<PaddedReorder>},
};

}  // namespace

std::span<const CpuKernel> CpuReorderKernels() { return kKernels; }

}  // namespace gradloom

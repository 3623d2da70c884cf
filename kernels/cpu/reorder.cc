// gradloom.Reorder: copies a tensor to another layout.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/shape.h"

namespace gradloom {
namespace {

// A dimension, or a block of one, as a loop over memory. One iteration advances by `step` elements of the dimension.
struct Axis {
  int dim = 0;
  int64_t extent = 1, step = 1, stride = 0;
};

// Outermost first.
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

// The axis of `axes` that contains the part of a dimension from `step` to `end`, or null if the part is divided.
const Axis* Holding(const std::vector<Axis>& axes, int dim, int64_t step, int64_t end) {
  for (const Axis& axis : axes) {
    if (axis.dim == dim && step % axis.step == 0 && end <= axis.step * axis.extent && step < axis.step * axis.extent) return &axis;
  }
  return nullptr;
}

// The output elements in memory order, with strides into the input; nullopt if the blocks of the two layouts do not nest.
struct ReorderPlan {
  Shape extents;
  std::vector<int64_t> strides;
};

std::optional<ReorderPlan> ReorderPlanOf(const OperandType& from, const OperandType& to) {
  const std::vector<Axis> in = AxesOf(from.layout, from.shape), out = AxesOf(to.layout, to.shape);
  ReorderPlan plan;
  for (const Axis& axis : out) {
    // Divide where the axes of the input start.
    std::vector<int64_t> cuts{axis.step, axis.step * axis.extent};
    for (const Axis& other : in) {
      if (other.dim == axis.dim && other.step > cuts[0] && other.step < axis.step * axis.extent) cuts.push_back(other.step);
    }
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = cuts.size() - 1; i-- > 0;) {
      const Axis* at = Holding(in, axis.dim, cuts[i], cuts[i + 1]);
      if (axis.extent == 1) continue;
      if (at == nullptr || cuts[i + 1] % cuts[i] != 0) return std::nullopt;
      plan.extents.push_back(cuts[i + 1] / cuts[i]);
      plan.strides.push_back(cuts[i] / at->step * at->stride);
    }
  }
  return plan;
}

// The offset for each index of one dimension. An element's offset is the sum over the dimensions.
std::vector<int64_t> OffsetsOf(const std::vector<Axis>& axes, int dim, int64_t extent) {
  std::vector<int64_t> offsets(static_cast<size_t>(extent), 0);
  for (const Axis& axis : axes) {
    if (axis.dim != dim) continue;
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += static_cast<int64_t>(i) / axis.step % axis.extent * axis.stride;
  }
  return offsets;
}

bool Pads(const OperandType& operand) { return operand.layout.Padded(operand.shape) != operand.shape; }

constexpr int64_t kElementsPerThread = 1 << 15;

// The dimension of the innermost axis with more than one element; -1: the tensor is one element.
int Innermost(const std::vector<Axis>& axes) {
  for (size_t k = axes.size(); k-- > 0;) {
    if (axes[k].extent > 1) return axes[k].dim;
  }
  return -1;
}

// Converts between any two layouts for elements of this unsigned type's size, including padding, by tables of offsets. Padding becomes
// zero.
//
// Elements that are adjacent in the output may be far apart in the input, and vice versa. So a tile is a cache line of the input by a run
// of the output's innermost dimension: each line that is read is used completely while it is in the cache.
template <typename Element>
class TableReorder : public Kernel {
 public:
  explicit TableReorder(const KernelCall& call)
      : loops_(BestLoops()), bytes_(Pads(call.outputs[0]) ? call.outputs[0].bytes() : 0), threads_(call.threads) {
    const OperandType &from = call.inputs[0], &to = call.outputs[0];
    const std::vector<Axis> in = AxesOf(from.layout, from.layout.Padded(from.shape)), out = AxesOf(to.layout, to.layout.Padded(to.shape));
    const auto table = [&](int dim) {
      const int64_t extent = dim < 0 ? 1 : from.shape[dim];
      return Dimension{extent, OffsetsOf(in, dim, extent), OffsetsOf(out, dim, extent)};
    };
    const int inner = Innermost(out);
    // The dimensions along which a cache line of the input extends: the innermost ones, until they fill a line.
    std::vector<int> dims{inner};
    for (size_t k = in.size(); k-- > 0 && across_.extent < kTile;) {
      if (std::find(dims.begin(), dims.end(), in[k].dim) != dims.end()) continue;
      dims.push_back(in[k].dim);
      across_ = Product(table(in[k].dim), across_);
    }
    std::vector<Dimension> outer;  // innermost of the output first
    for (size_t k = out.size(); k-- > 0;) {
      if (std::find(dims.begin(), dims.end(), out[k].dim) != dims.end()) continue;
      dims.push_back(out[k].dim);
      outer.push_back(table(out[k].dim));
    }
    outer_.assign(outer.rbegin(), outer.rend());
    MakeParts();
    MakeRuns(table(inner));
    tiles_ = static_cast<int64_t>(runs_.size() * parts_.size());
    for (const Dimension& dimension : outer_) tiles_ *= dimension.extent;
    elements_ = from.shape.elements();
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* from = static_cast<const Element*>(inputs[0]);
    auto* to = static_cast<Element*>(outputs[0]);
    if (bytes_ > 0) std::memset(to, 0, static_cast<size_t>(bytes_));
    ParallelRanges(tiles_, 1, ThreadsFor(elements_, kElementsPerThread, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) CopyTile(tile, from, to);
    });
  }

 private:
  static constexpr int64_t kTile = 64 / sizeof(Element);
  static constexpr int64_t kRun = 64;  // lines per tile: together with the lines that are written, they fit into the L1 cache

  struct Dimension {
    int64_t extent = 1;
    std::vector<int64_t> from{0}, to{0};
  };
  // Elements that are adjacent in the output, and `step` apart in the input.
  struct StridedRun {
    int64_t from, to, count, step;
  };
  // A part of the dimensions along an input line, at most one line. Elements adjacent in the input are `step` apart in the output; 0: at
  // varying distances.
  struct Part {
    int64_t begin, count, step;
  };

  static Dimension Product(const Dimension& outer, const Dimension& inner) {
    Dimension product{outer.extent * inner.extent, {}, {}};
    for (size_t i = 0; i < outer.from.size(); ++i) {
      for (size_t j = 0; j < inner.from.size(); ++j) {
        product.from.push_back(outer.from[i] + inner.from[j]);
        product.to.push_back(outer.to[i] + inner.to[j]);
      }
    }
    return product;
  }

  void MakeParts() {
    for (int64_t begin = 0; begin < across_.extent; begin += kTile) {
      Part part{begin, std::min(kTile, across_.extent - begin), 0};
      const auto at = [&](const std::vector<int64_t>& offsets, int64_t i) { return offsets[static_cast<size_t>(begin + i)]; };
      bool even = part.count > 1;
      for (int64_t i = 1; even && i < part.count; ++i) {
        even = at(across_.from, i) == at(across_.from, i - 1) + 1 &&
               at(across_.to, i) - at(across_.to, i - 1) == at(across_.to, 1) - at(across_.to, 0);
      }
      if (even) part.step = at(across_.to, 1) - at(across_.to, 0);
      parts_.push_back(part);
    }
  }

  void MakeRuns(const Dimension& inner) {
    for (size_t i = 0; i < inner.from.size(); ++i) {
      const int64_t from = inner.from[i], to = inner.to[i];
      StridedRun* last = runs_.empty() ? nullptr : &runs_.back();
      const int64_t step = last == nullptr ? 0 : from - (last->from + (last->count - 1) * last->step);
      if (last != nullptr && last->count < kRun && to == last->to + last->count && (last->count == 1 || step == last->step)) {
        last->step = step;
        ++last->count;
      } else {
        runs_.push_back({from, to, 1, 0});
      }
    }
  }

  void CopyTile(int64_t tile, const Element* from, Element* to) const {
    // One run for all lines before the next run.
    const Part& part = parts_[static_cast<size_t>(tile) % parts_.size()];
    tile /= static_cast<int64_t>(parts_.size());
    for (size_t i = outer_.size(); i-- > 0;) {
      const auto index = static_cast<size_t>(tile % outer_[i].extent);
      tile /= outer_[i].extent;
      from += outer_[i].from[index];
      to += outer_[i].to[index];
    }
    const StridedRun& run = runs_[static_cast<size_t>(tile)];
    from += run.from;
    to += run.to;
    const int64_t *froms = across_.from.data() + part.begin, *tos = across_.to.data() + part.begin;
    if constexpr (sizeof(Element) == sizeof(float)) {
      if (part.step > 0 && run.count > 1) {
        loops_.transpose(reinterpret_cast<const float*>(from + froms[0]), run.step, reinterpret_cast<float*>(to + tos[0]), part.step,
                         part.count, run.count);
        return;
      }
    }
    for (int64_t at = 0; at < part.count; ++at) {
      const Element* x = from + froms[at];
      Element* z = to + tos[at];
      if (run.step == 1) {
        for (int64_t i = 0; i < run.count; ++i) z[i] = x[i];
      } else {
        for (int64_t i = 0; i < run.count; ++i) z[i] = x[i * run.step];
      }
    }
  }

  const Loops& loops_;
  int64_t bytes_;  // to clear; 0: none
  int threads_;
  std::vector<Dimension> outer_;  // outermost first
  Dimension across_;
  std::vector<Part> parts_;
  std::vector<StridedRun> runs_;
  int64_t tiles_ = 1, elements_ = 0;
};

class Reorder : public Kernel {
 public:
  Reorder(const ReorderPlan& plan, DType dtype, int threads) : dtype_(dtype), threads_(threads), view_(plan.extents, plan.strides.data()) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    GatherStrided(view_, dtype_, inputs[0], outputs[0], threads_);
  }

 private:
  DType dtype_;
  int threads_;
  StridedView view_;
};

// The layouts of weights for products of bfloat16 have pairs of elements innermost, which are adjacent along one dimension, and around them
// a block of another dimension. They are made from an operand without blocks in which either dimension is contiguous: the pairs are
// elements of 32 bits, and their block a row of a transposed matrix; or a row of the block is two rows of the operand, merged. Padding
// becomes zero.
class PairBlocks : public Kernel {
 public:
  explicit PairBlocks(const KernelCall& call)
      : shape_(call.inputs[0].shape), loops_(BestLoops()), strides_(StridesOf(call.inputs[0])), outer_(PaddedAxes(call.outputs[0])) {
    pair_ = outer_.back(), outer_.pop_back();
    block_ = outer_.back(), outer_.pop_back();
    if (HasWholePairs(call)) rows_ = outer_.back().extent, outer_.pop_back();
    for (const Axis& axis : outer_) tiles_ *= axis.extent;
    threads_ = ThreadsFor(shape_.elements(), kElementsPerThread, call.threads);
  }

  static bool Serves(const KernelCall& call) {
    const OperandType &from = call.inputs[0], &to = call.outputs[0];
    const auto& blocks = to.layout.blocks;
    if (DTypeBytes(to.dtype) != 2 || !from.layout.blocks.empty() || blocks.size() < 2 || to.shape.rank() > kMaxRank) return false;
    const auto &block = blocks[blocks.size() - 2], &pair = blocks.back();
    if (pair.size != 2 || pair.dim == block.dim || block.size > kMaxBlock) return false;
    return HasWholePairs(call) || StridesOf(from)[static_cast<size_t>(block.dim)] == 1;
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const auto* const from = static_cast<const uint16_t*>(inputs[0]);
    auto* const to = static_cast<uint32_t*>(outputs[0]);
    const int64_t size = std::max<int64_t>(rows_, 1) * block_.extent;
    ParallelRanges(tiles_, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) CopyTile(tile, from, to + tile * size);
    });
  }

 private:
  static constexpr int64_t kMaxBlock = 64;

  static std::vector<int64_t> StridesOf(const OperandType& plain) {
    std::vector<int64_t> strides(static_cast<size_t>(plain.shape.rank()));
    for (const Axis& axis : AxesOf(plain.layout, plain.shape)) strides[static_cast<size_t>(axis.dim)] = axis.stride;
    return strides;
  }
  static std::vector<Axis> PaddedAxes(const OperandType& operand) { return AxesOf(operand.layout, operand.layout.Padded(operand.shape)); }

  // Whether every pair is one of adjacent elements of the input, and the axis around the block counts such pairs.
  static bool HasWholePairs(const KernelCall& call) {
    const OperandType &from = call.inputs[0], &to = call.outputs[0];
    const std::vector<Axis> axes = PaddedAxes(to);
    if (axes.size() < 3) return false;
    const Axis &pair = axes.back(), &around = axes[axes.size() - 3];
    const std::vector<int64_t> strides = StridesOf(from);
    if (around.dim != pair.dim || around.step != 2 || strides[static_cast<size_t>(pair.dim)] != 1 || from.shape[pair.dim] % 2 != 0) {
      return false;
    }
    for (int dim = 0; dim < from.shape.rank(); ++dim) {
      if (dim != pair.dim && from.shape[dim] > 1 && strides[static_cast<size_t>(dim)] % 2 != 0) return false;
    }
    return true;
  }

  int64_t stride(const Axis& axis) const { return strides_[static_cast<size_t>(axis.dim)]; }

  void CopyTile(int64_t tile, const uint16_t* from, uint32_t* to) const {
    std::array<int64_t, kMaxRank> at{};  // the first index of the tile along each dimension
    for (size_t i = outer_.size(); i-- > 0;) {
      at[static_cast<size_t>(outer_[i].dim)] += tile % outer_[i].extent * outer_[i].step;
      tile /= outer_[i].extent;
    }
    bool inside = true;
    for (int dim = 0; dim < shape_.rank(); ++dim) inside = inside && at[static_cast<size_t>(dim)] < shape_[dim];
    if (!inside) {
      std::fill_n(to, std::max<int64_t>(rows_, 1) * block_.extent, 0u);
      return;
    }
    for (int dim = 0; dim < shape_.rank(); ++dim) from += at[static_cast<size_t>(dim)] * strides_[static_cast<size_t>(dim)];
    const int64_t columns = std::min(shape_[block_.dim] - at[static_cast<size_t>(block_.dim)], block_.extent);
    const int64_t left = shape_[pair_.dim] - at[static_cast<size_t>(pair_.dim)];
    if (rows_ > 0) return Transpose(from, std::min(left / 2, rows_), columns, to);
    static constexpr uint16_t kZeros[kMaxBlock] = {};
    loops_.pair_rows(from, left > 1 ? from + stride(pair_) : kZeros, to, columns);
    std::fill(to + columns, to + block_.extent, 0u);
  }

  void Transpose(const uint16_t* from, int64_t rows, int64_t columns, uint32_t* to) const {
    loops_.transpose(reinterpret_cast<const float*>(from), stride(block_) / 2, reinterpret_cast<float*>(to), block_.extent, rows, columns);
    for (int64_t row = 0; row < rows && columns < block_.extent; ++row) {
      std::fill(to + row * block_.extent + columns, to + (row + 1) * block_.extent, 0u);
    }
    std::fill(to + rows * block_.extent, to + rows_ * block_.extent, 0u);
  }

  const Shape shape_;
  const Loops& loops_;
  const std::vector<int64_t> strides_;  // of the input
  std::vector<Axis> outer_;             // of the output, around a tile
  Axis block_, pair_;
  int64_t rows_ = 0, tiles_ = 1;  // rows_: of blocks in a tile that is transposed
  int threads_;
};

std::unique_ptr<Kernel> MakeReorder(const KernelCall& call) {
  if (PairBlocks::Serves(call)) return std::make_unique<PairBlocks>(call);
  return std::make_unique<Reorder>(*ReorderPlanOf(call.inputs[0], call.outputs[0]), call.inputs[0].dtype, call.threads);
}

std::string RejectsTypes(const OperandType& from, const OperandType& to) {
  if (from.dtype != to.dtype || from.shape != to.shape) return "operands of different types";
  return from.shape.elements() == 0 ? "nothing to copy" : "";
}

std::string Rejects(const KernelCall& call) {
  const OperandType &from = call.inputs[0], &to = call.outputs[0];
  if (std::string why = RejectsTypes(from, to); !why.empty()) return why;
  if (PairBlocks::Serves(call)) return "";
  if (Pads(from) || Pads(to)) return "padding";
  return ReorderPlanOf(from, to) ? "" : "blocks of " + from.layout.ToString() + " and " + to.layout.ToString() + " that do not nest";
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
    {.row = {.name = "cpu.Reorder", .op = "Reorder", .domain = "gradloom", .rejects = Rejects}, .make = MakeReorder},
    {.row = {.name = "cpu.TableReorder", .op = "Reorder", .domain = "gradloom", .rejects = RejectsTable}, .make = MakeTable},
};

}  // namespace

std::span<const CpuKernel> CpuReorderKernels() { return kKernels; }

}  // namespace gradloom

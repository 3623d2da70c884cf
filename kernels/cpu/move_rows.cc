// Transpose, Expand, Tile, Slice and its gradient, Concat and Split.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/parallel_bytes.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kBytesPerThread = 1 << 17;

using Strides = std::array<int64_t, kMaxRank>;

Strides StridesOf(const Shape& shape) {
  Strides strides{};
  int64_t stride = 1;
  for (int axis = shape.rank(); axis-- > 0;) {
    strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

std::vector<int64_t> PermutationOf(const KernelCall& call) {
  std::vector<int64_t> perm = call.attributes.Ints("perm");
  if (perm.empty()) {
    for (int axis = call.inputs[0].shape.rank(); axis-- > 0;) perm.push_back(axis);
  }
  return perm;
}

Strides TransposeStrides(const KernelCall& call) {
  const Strides own = StridesOf(call.inputs[0].shape);
  Strides strides{};
  size_t i = 0;
  for (int64_t axis : PermutationOf(call)) strides[i++] = own[static_cast<size_t>(*NormalAxis(axis, call.inputs[0].shape.rank()))];
  return strides;
}

Strides ExpandStrides(const KernelCall& call) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const Strides own = StridesOf(from);
  Strides strides{};
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] != 1) strides[static_cast<size_t>(axis + to.rank() - from.rank())] = own[static_cast<size_t>(axis)];
  }
  return strides;
}

template <Strides (*strides_of)(const KernelCall&)>
StridedView ViewOf(const KernelCall& call) {
  return {call.outputs[0].shape, strides_of(call).data()};
}

// Each axis becomes (repeats, extent), with stride 0 along the repeats.
StridedView TileView(const KernelCall& call) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const Strides own = StridesOf(from);
  Shape split;
  Strides strides{};
  for (int axis = 0; axis < from.rank(); ++axis) {
    split.push_back(from[axis] == 0 ? 0 : to[axis] / from[axis]);
    split.push_back(from[axis]);
    strides[static_cast<size_t>(2 * axis + 1)] = own[static_cast<size_t>(axis)];
  }
  return {split, strides.data()};
}

// The result is a strided view of the input.
template <StridedView (*view_of)(const KernelCall&)>
class Strided : public Kernel {
 public:
  explicit Strided(const KernelCall& call) : dtype_(call.inputs[0].dtype), threads_(call.threads), view_(view_of(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    GatherStrided(view_, dtype_, inputs[0], outputs[0], threads_);
  }

 private:
  DType dtype_;
  int threads_;
  StridedView view_;
};

// Slice, and gradloom.SliceGrad, which writes where the slice read. The bounds are operands.
template <bool kGradient>
class Slice : public Kernel {
 public:
  explicit Slice(const KernelCall& call) : call_(call), whole_(kGradient ? call.outputs[0] : call.inputs[0]) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    Strides strides = StridesOf(whole_.shape);
    int64_t first = 0;
    const int64_t n = call_.inputs[1].shape.elements();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t axis = HasInput(call_, 3) ? Integer(inputs, 3, i) : i, step = HasInput(call_, 4) ? Integer(inputs, 4, i) : 1;
      const auto normal = NormalAxis(axis, whole_.shape.rank());
      if (!normal || step == 0) throw Error(ErrorCode::kValue, call_.op + ": an axis out of range, or step 0");
      const int64_t extent = whole_.shape[*normal], at = Integer(inputs, 1, i), start = at < 0 ? at + extent : at;
      int64_t& stride = strides[static_cast<size_t>(*normal)];
      first += std::clamp<int64_t>(start, 0, step > 0 ? extent : std::max<int64_t>(extent - 1, 0)) * stride;
      // The step of an axis with one element may be anything: the product may wrap, as it is never used.
      stride = static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(step));
    }
    const OperandType& part = kGradient ? call_.inputs[0] : call_.outputs[0];
    const StridedView view(part.shape, strides.data());
    const int64_t offset = first * DTypeBytes(part.dtype);
    if (kGradient) {
      ZeroBytes(outputs[0], whole_.bytes(), call_.threads);
      ScatterStrided(view, part.dtype, inputs[0], static_cast<char*>(outputs[0]) + offset, call_.threads);
    } else {
      GatherStrided(view, part.dtype, static_cast<const char*>(inputs[0]) + offset, outputs[0], call_.threads);
    }
  }

 private:
  int64_t Integer(const void* const* inputs, size_t operand, int64_t i) const {
    const DType dtype = call_.inputs[operand].dtype;
    return dtype == DType::kInt64 ? static_cast<const int64_t*>(inputs[operand])[i] : static_cast<const int32_t*>(inputs[operand])[i];
  }

  KernelCall call_;
  OperandType whole_;
};

// Concat and Split: one tensor as outer * (parts, in bytes), and the parts as separate tensors.
template <bool kJoin>
class Parts : public Kernel {
 public:
  explicit Parts(const KernelCall& stated) {
    const PhysicalCall physical = *PhysicalOf(stated);
    const KernelCall& call = physical.call;
    const OperandType& whole = kJoin ? call.outputs[0] : call.inputs[0];
    const int axis = physical.Axis(*NormalAxis(call.attributes.Int("axis", 0), whole.shape.rank()));
    outer_ = Product(whole.shape, 0, axis);
    inner_ = Product(whole.shape, axis + 1, whole.shape.rank()) * DTypeBytes(whole.dtype);
    extent_ = whole.shape[axis];
    int64_t rest = extent_;
    for (const OperandType& part : kJoin ? call.inputs : call.outputs) {
      sizes_.push_back(part.present() ? part.shape[axis] : -1);
      rest -= part.present() ? part.shape[axis] : 0;
    }
    for (int64_t& size : sizes_) size = size < 0 ? rest : size;
    threads_ = ThreadsFor(whole.bytes(), kBytesPerThread, call.threads);
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const int64_t row = extent_ * inner_;
    int64_t at = 0;
    for (size_t k = 0; k < sizes_.size(); at += sizes_[k++] * inner_) {
      const int64_t bytes = sizes_[k] * inner_;
      const char* from = static_cast<const char*>(inputs[kJoin ? k : 0]) + (kJoin ? 0 : at);
      char* to = static_cast<char*>(outputs[kJoin ? 0 : k]);
      if (to == nullptr || bytes == 0) continue;
      if (kJoin) to += at;
      const int64_t from_step = kJoin ? bytes : row, to_step = kJoin ? row : bytes;
      if (outer_ == 1) {
        ParallelRanges(bytes, kAlignmentBytes, threads_,
                       [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin)); });
      } else {
        ParallelFor(outer_, threads_, [&](int64_t o) { std::memcpy(to + o * to_step, from + o * from_step, static_cast<size_t>(bytes)); });
      }
    }
  }

 private:
  int64_t outer_ = 0, inner_ = 0, extent_ = 0;
  std::vector<int64_t> sizes_;
  int threads_ = 1;
};

std::string RejectsTranspose(const KernelCall& call) {
  for (int64_t axis : PermutationOf(call)) {
    if (!NormalAxis(axis, call.inputs[0].shape.rank())) return "an axis out of range";
  }
  return RejectsLayouts(call);
}

std::string RejectsExpand(const KernelCall& call) {
  return call.inputs[0].shape.rank() > call.outputs[0].shape.rank() ? "more axes than the result" : RejectsLayouts(call);
}

std::string RejectsTile(const KernelCall& call) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  if (from.rank() != to.rank() || 2 * from.rank() > kMaxRank) return "rank " + std::to_string(from.rank());
  if (!HasWidth(call.inputs[0].dtype)) return std::string(DTypeName(call.inputs[0].dtype));
  return RejectsLayouts(call);
}

std::string RejectsSlice(const KernelCall& call) {
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const DType dtype = call.inputs[i].dtype;
    if (call.inputs[i].present() && dtype != DType::kInt64 && dtype != DType::kInt32) return "bounds that are not integers";
  }
  return RejectsLayouts(call);
}

std::string RejectsConcat(const KernelCall& call) {
  if (!NormalAxis(call.attributes.Int("axis", 0), call.outputs[0].shape.rank())) return "axis out of range";
  return PhysicalOf(call) ? "" : RejectsLayouts(call);
}

std::string RejectsSplit(const KernelCall& call) {
  if (!NormalAxis(call.attributes.Int("axis", 0), call.inputs[0].shape.rank())) return "axis out of range";
  // The size of one unused part follows from the others, that of two does not.
  const auto unwanted = std::count_if(call.outputs.begin(), call.outputs.end(), [](const OperandType& part) { return !part.present(); });
  if (unwanted > 1) return "several parts that nobody wants";
  return PhysicalOf(call) ? "" : RejectsLayouts(call);
}

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain, std::string (*rejects)(const KernelCall&),
                        std::unique_ptr<Kernel> (*make)(const KernelCall&)) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = rejects}, .make = make};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.Transpose", "Transpose", "", RejectsTranspose, MakeKernel<Strided<ViewOf<TransposeStrides>>>),
    Row("cpu.Expand", "Expand", "", RejectsExpand, MakeKernel<Strided<ViewOf<ExpandStrides>>>),
    Row("cpu.Tile", "Tile", "", RejectsTile, MakeKernel<Strided<TileView>>),
    Row("cpu.Slice", "Slice", "", RejectsSlice, MakeKernel<Slice<false>>),
    Row("cpu.SliceGrad", "SliceGrad", "gradloom", RejectsSlice, MakeKernel<Slice<true>>),
    Row("cpu.Concat", "Concat", "", RejectsConcat, MakeKernel<Parts<true>>),
    Row("cpu.Split", "Split", "", RejectsSplit, MakeKernel<Parts<false>>),
};

}  // namespace

std::span<const CpuKernel> CpuMoveKernels() { return kKernels; }

}  // namespace gradloom

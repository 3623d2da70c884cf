// gradloom.Reorder: copies a tensor to another layout. Casts that do so as well.
#include "kernels/cuda/move.cuh"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {
namespace {

// A dimension, or a block of one, as a loop over memory. One iteration advances by `step` elements of the dimension.
struct Part {
  int dim;
  int64_t extent, step, stride;
};

inline constexpr int kMaxParts = 2 * kMaxAxes;  // a layout has at most 8 blocks

// The loops of a layout, outermost first.
struct Parts {
  int count = 0;
  Part at[kMaxParts];

  explicit Parts(const OperandType& operand) {
    const Shape padded = operand.layout.Padded(operand.shape);
    std::vector<int64_t> block(static_cast<size_t>(padded.rank()), 1);
    for (const auto& [dim, size] : operand.layout.blocks) block[static_cast<size_t>(dim)] *= size;
    for (int i = 0; i < padded.rank(); ++i) {
      const int dim = operand.layout.order.empty() ? i : operand.layout.order[static_cast<size_t>(i)];
      const int64_t step = block[static_cast<size_t>(dim)];
      at[count++] = {dim, padded[dim] / step, step, 0};
    }
    for (const auto& [dim, size] : operand.layout.blocks) {
      block[static_cast<size_t>(dim)] /= size;
      at[count++] = {dim, size, block[static_cast<size_t>(dim)], 0};
    }
    int64_t stride = 1;
    for (int i = count - 1; i >= 0; --i) {
      at[i].stride = stride;
      stride *= at[i].extent;
    }
  }
};

// `n` is the number of elements of the output in memory, including padding.
template <typename T>
void ReorderParts(int64_t n, const T* in, T* out, const Parts& from, const Parts& to, const AxisArray& extents, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int64_t index[kMaxAxes] = {};
        int64_t rest = i;
        for (int k = to.count - 1; k >= 0; --k) {
          const Quotient q = Divide(rest, to.at[k].extent);
          index[to.at[k].dim] += q.rest * to.at[k].step;
          rest = q.quotient;
        }
        int64_t offset = 0;
        for (int k = 0; k < from.count; ++k) {
          const int dim = from.at[k].dim;
          if (index[dim] >= extents[dim]) {
            out[i] = T{0};
            return;
          }
          offset += Divide(Divide(index[dim], from.at[k].step).quotient, from.at[k].extent).rest * from.at[k].stride;
        }
        out[i] = in[offset];
      });
}

// The same for a target whose innermost part is its only block, of kSize elements, and a source without blocks, which advances by `step`
// with an element of the block. A thread writes a block, with zeros as padding. Elements are converted to To.
template <int kSize, typename From, typename To>
void ReorderBlocks(int64_t blocks, const From* in, To* out, const Parts& from, const Parts& to, const AxisArray& extents, int64_t step,
                   cudaStream_t stream) {
  ForEachElement(
      blocks, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int64_t index[kMaxAxes] = {};
        int64_t rest = i;
        for (int k = to.count - 2; k >= 0; --k) {
          const Quotient q = Divide(rest, to.at[k].extent);
          index[to.at[k].dim] += q.rest * to.at[k].step;
          rest = q.quotient;
        }
        int64_t offset = 0;
        for (int k = 0; k < from.count; ++k) offset += index[from.at[k].dim] * from.at[k].stride;
        const int dim = to.at[to.count - 1].dim;
        const int64_t left = extents[dim] - index[dim];
        AlignedVector<To, kSize> block = {};
        GRADLOOM_UNROLL
        for (int k = 0; k < kSize; ++k) {
          if (k < left) block.at[k] = static_cast<To>(in[offset + k * step]);
        }
        *reinterpret_cast<AlignedVector<To, kSize>*>(out + i * kSize) = block;
      });
}

// Reorders from elements of the type From into words of elements of the type To.
template <typename From, typename To>
std::unique_ptr<Kernel> MakeIntoWords(const OperandType& in, const OperandType& out) {
  static_assert(kMaxWordBytes == kRowAlignmentBytes);
  constexpr int kSize = kMaxWordBytes / sizeof(To);
  const Parts from(in), to(out);
  const AxisArray extents(out.shape.dims());
  const int64_t blocks = out.layout.elements(out.shape) / kSize, step = StridesOf(in)[static_cast<size_t>(out.layout.blocks[0].dim)];
  return MakeKernel([=](const Launch& l) { ReorderBlocks<kSize>(blocks, l.In<From>(0), l.Out<To>(0), from, to, extents, step, l.stream); });
}

}  // namespace

std::unique_ptr<Kernel> MakeReorder(const KernelCall& call, const KernelSite&) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  if (in.layout.blocks.empty() && out.layout.blocks.empty()) {
    const StridedCopy copy(out.shape, DTypeBytes(out.dtype), {StridesOf(in), 0}, {StridesOf(out), 0});
    return MakeKernel([copy](const Launch& l) { copy.Run(l.inputs[0], l.outputs[0], l.stream); });
  }
  if (in.layout.blocks.empty() && HasWordBlock(out))
    return WithBytes(out.dtype, [&]<typename T>(std::type_identity<T>) { return MakeIntoWords<T, T>(in, out); });
  const Parts from(in), to(out);
  const AxisArray extents(out.shape.dims());
  const int64_t n = out.layout.elements(out.shape);
  return WithBytes(out.dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { ReorderParts(n, l.In<T>(0), l.Out<T>(0), from, to, extents, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeCastIntoWords(const KernelCall& call, const KernelSite&) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  return out.dtype == DType::kFloat16 ? MakeIntoWords<float, Half>(in, out) : MakeIntoWords<float, Bfloat16>(in, out);
}

}  // namespace gradloom::cuda

// Folds of any number of broadcast operands, selection, clipping and casts.
#include <algorithm>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/rows/fold.h"

namespace gradloom::cuda {
namespace {

enum class Fold : uint8_t { kMax, kMin, kSum };

// NaN propagates, as in numpy.maximum.
template <typename A>
GRADLOOM_DEVICE A Apply(Fold fold, A a, A b) {
  if (fold == Fold::kSum) return static_cast<A>(a + b);
  return fold == Fold::kMax ? libm::Larger(a, b) : libm::Smaller(a, b);
}

inline constexpr int kMaxOperands = cuda_rows::kFoldedAtOnce;

// Operands that are broadcast to one shape. The parameters of a kernel have room for kMaxOperands; more are folded in several launches.
struct Operands {
  int count = 0, rank = 0;
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxOperands][kMaxAxes] = {};
  const void* data[kMaxOperands] = {};

  GRADLOOM_DEVICE int64_t Offset(int operand, int64_t i) const {
    int64_t offset = 0;
    for (int axis = rank - 1; axis > 0; --axis) {
      const Quotient q = Divide(i, extents[axis]);
      offset += q.rest * strides[operand][axis];
      i = q.quotient;
    }
    return rank == 0 ? 0 : offset + i * strides[operand][0];
  }
};

// If no operand is broadcast, all axes are merged into one; otherwise axes stay as they are.
Operands OperandsOf(const std::vector<Shape>& shapes, const Shape& to) {
  Operands operands;
  operands.count = static_cast<int>(shapes.size());
  const bool alike = std::all_of(shapes.begin(), shapes.end(), [&](const Shape& shape) { return shape.elements() == to.elements(); });
  operands.rank = alike ? 1 : to.rank();
  for (int axis = 0; axis < operands.rank; ++axis) operands.extents[axis] = alike ? to.elements() : to[axis];
  for (size_t k = 0; k < shapes.size(); ++k) {
    const std::vector<int64_t> strides = alike ? std::vector<int64_t>{1} : BroadcastStrides(shapes[k], to);
    std::copy(strides.begin(), strides.end(), operands.strides[k]);
  }
  return operands;
}

// Folds the operands from the left, and divides by `divisor`. The first operand has elements of type First, the others of type T.
template <typename T, typename First, typename Result>
void FoldAll(int64_t n, const Operands& operands, Result* out, Fold fold, double divisor, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const A by = static_cast<A>(divisor);
  const bool divides = divisor != 1;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        A total = static_cast<A>(static_cast<const First*>(operands.data[0])[operands.Offset(0, i)]);
        for (int k = 1; k < operands.count; ++k) {
          total = Apply(fold, total, static_cast<A>(static_cast<const T*>(operands.data[k])[operands.Offset(k, i)]));
        }
        out[i] = static_cast<Result>(divides ? total / by : total);
      });
}

template <typename T>
void Choose(int64_t n, const bool* condition, const T* x, const T* y, T* out, const OffsetCalculator<3>& offsets, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto at = offsets(i);
        out[i] = condition[at.at[0]] ? x[at.at[1]] : y[at.at[2]];
      });
}

// min(max(x, low), high): the result is high if low > high. A null bound is absent.
template <typename T>
void Clip(int64_t n, const T* in, const T* low, const T* high, T* out, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        A x = static_cast<A>(in[i]);
        if (low != nullptr && x < static_cast<A>(low[0])) x = static_cast<A>(low[0]);
        if (high != nullptr && x > static_cast<A>(high[0])) x = static_cast<A>(high[0]);
        out[i] = static_cast<T>(x);
      });
}

inline constexpr int kCasts = 4;  // per thread

// Converts elements i, i + part, ... All are loaded before the first conversion, because casts of weights are bound by memory.
template <typename To, typename From>
GRADLOOM_DEVICE void CastSome(int64_t n, int64_t part, int64_t i, const void* in, To* out) {
  const From* const from = static_cast<const From*>(in);
  From x[kCasts];
  for (int k = 0; k < kCasts; ++k) {
    if (i + k * part < n) x[k] = from[i + k * part];
  }
  for (int k = 0; k < kCasts; ++k) {
    if (i + k * part < n) out[i + k * part] = Convert<To>(x[k]);
  }
}

template <typename To>
void Cast(int64_t n, const void* in, DType from, To* out, cudaStream_t stream) {
  const int64_t part = (n + kCasts - 1) / kCasts;
  ForEachElement(
      part, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        switch (from) {
          case DType::kFloat32: return CastSome<To, float>(n, part, i, in, out);
          case DType::kFloat64: return CastSome<To, double>(n, part, i, in, out);
          case DType::kFloat16: return CastSome<To, Half>(n, part, i, in, out);
          case DType::kBfloat16: return CastSome<To, Bfloat16>(n, part, i, in, out);
          case DType::kInt8: return CastSome<To, int8_t>(n, part, i, in, out);
          case DType::kInt16: return CastSome<To, int16_t>(n, part, i, in, out);
          case DType::kInt32: return CastSome<To, int32_t>(n, part, i, in, out);
          case DType::kInt64: return CastSome<To, int64_t>(n, part, i, in, out);
          case DType::kUint8: return CastSome<To, uint8_t>(n, part, i, in, out);
          case DType::kUint16: return CastSome<To, uint16_t>(n, part, i, in, out);
          case DType::kUint32: return CastSome<To, uint32_t>(n, part, i, in, out);
          case DType::kUint64: return CastSome<To, uint64_t>(n, part, i, in, out);
          case DType::kBool: return CastSome<To, bool>(n, part, i, in, out);
          default: return;
        }
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeFold(const KernelCall& stated, const KernelSite&) {
  const KernelCall call = InMemoryOrder(stated);
  const Shape& shape = call.outputs[0].shape;
  const int64_t n = shape.elements();
  const Fold fold = call.op == "Max" ? Fold::kMax : call.op == "Min" ? Fold::kMin : Fold::kSum;
  const double divisor = call.op == "Mean" ? static_cast<double>(call.inputs.size()) : 1;
  // From the second launch on, the total of the previous ones is the first operand.
  std::vector<Operands> turns;
  for (size_t next = 0; next < call.inputs.size();) {
    std::vector<Shape> shapes;
    if (next > 0) shapes.push_back(shape);
    while (next < call.inputs.size() && shapes.size() < kMaxOperands) shapes.push_back(call.inputs[next++].shape);
    turns.push_back(OperandsOf(shapes, shape));
  }
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    return MakeKernel([=](const Launch& l) {
      // Totals of 16-bit numbers are rounded, and overflow, only in the result.
      void* const totals = kIsHalf<T> ? l.scratch : l.outputs[0];
      size_t next = 0;
      for (size_t turn = 0; turn < turns.size(); ++turn) {
        Operands operands = turns[turn];
        for (int k = 0; k < operands.count; ++k) operands.data[k] = turn > 0 && k == 0 ? totals : l.inputs[next++];
        const bool last = turn + 1 == turns.size();
        if (turn == 0 && last)
          FoldAll<T, T>(n, operands, l.Out<T>(0), fold, divisor, l.stream);
        else if (turn == 0)
          FoldAll<T, T>(n, operands, static_cast<A*>(totals), fold, 1, l.stream);
        else if (last)
          FoldAll<T, A>(n, operands, l.Out<T>(0), fold, divisor, l.stream);
        else
          FoldAll<T, A>(n, operands, static_cast<A*>(totals), fold, 1, l.stream);
      }
    });
  });
}

std::unique_ptr<Kernel> MakeWhere(const KernelCall& stated, const KernelSite&) {
  const KernelCall call = InMemoryOrder(stated);
  const Shape& shape = call.outputs[0].shape;
  const auto strides = [&](size_t i) { return BroadcastStrides(call.inputs[i].shape, shape); };
  const OffsetCalculator<3> offsets(shape, {strides(0), strides(1), strides(2)});
  return WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel(
        [=, n = shape.elements()](const Launch& l) { Choose(n, l.In<bool>(0), l.In<T>(1), l.In<T>(2), l.Out<T>(0), offsets, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeClip(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  const bool has_low = Has(call.inputs, 1), has_high = Has(call.inputs, 2);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      Clip(n, l.In<T>(0), has_low ? l.In<T>(1) : nullptr, has_high ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeCast(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  const DType from = call.inputs[0].dtype;
  return WithType(call.outputs[0].dtype, [&]<typename To>(std::type_identity<To>) {
    return MakeKernel([=](const Launch& l) { Cast(n, l.inputs[0], from, l.Out<To>(0), l.stream); });
  });
}

}  // namespace gradloom::cuda

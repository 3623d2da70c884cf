// Functions of any number of broadcast operands, selection, clipping and casts.
#include <algorithm>
#include <cmath>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/libm.h"
#include "runtime/base/convert.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

// Folds the operands from the left with f(total, next), and applies `finish` to the result. Total is the type of accumulation, so that sums
// of 16-bit elements are rounded once.
template <typename T, typename Total, typename F, typename Finish>
void Fold(const KernelCall& call, const void* const* in, void* const* out, F&& f, Finish&& finish) {
  const Shape& shape = call.outputs[0].shape;
  constexpr int64_t kBlock = 256;
  std::array<Total, kBlock> total;
  const int64_t n = shape.elements();
  std::vector<std::vector<int64_t>> strides;
  for (const OperandType& operand : call.inputs) strides.push_back(BroadcastStrides(operand.shape, shape));
  const int rank = shape.rank();
  // The offset in operand k of element i of the row-major output.
  const auto offset = [&](size_t k, int64_t i) {
    if (call.inputs[k].shape == shape) return i;
    int64_t at = 0;
    for (int axis = rank; axis-- > 0;) {
      at += i % shape[axis] * strides[k][static_cast<size_t>(axis)];
      i /= shape[axis];
    }
    return at;
  };
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      const T* x = In<T>(in, k);
      for (int64_t j = 0; j < count; ++j) {
        const Total value = static_cast<Total>(x[offset(k, begin + j)]);
        Total& sum = total[static_cast<size_t>(j)];
        sum = k == 0 ? value : f(sum, value);
      }
    }
    for (int64_t j = 0; j < count; ++j) Out<T>(out, 0)[begin + j] = static_cast<T>(finish(total[static_cast<size_t>(j)]));
  }
}

const auto kSame = [](auto x) { return x; };

template <bool kLargest>
void Extreme(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Fold<T, Arithmetic<T>>(
        call, in, out, [](auto a, auto b) { return kLargest ? libm::Larger(a, b) : libm::Smaller(a, b); }, kSame);
  });
}

void Sum(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Fold<T, Arithmetic<T>>(
        call, in, out, [](auto a, auto b) { return a + b; }, kSame);
  });
}

void Mean(const KernelCall& call, const void* const* in, void* const* out) {
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const auto count = static_cast<Arithmetic<T>>(call.inputs.size());
    Fold<T, Arithmetic<T>>(
        call, in, out, [](auto a, auto b) { return a + b; }, [=](auto x) { return x / count; });
  });
}

void Where(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const Nest<3> nest(shape, {BroadcastStrides(call.inputs[0].shape, shape), BroadcastStrides(call.inputs[1].shape, shape),
                             BroadcastStrides(call.inputs[2].shape, shape)});
  WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const bool* condition = In<bool>(in, 0);
    const T *x = In<T>(in, 1), *y = In<T>(in, 2);
    T* z = Out<T>(out, 0);
    nest.ForEachRow([&](int64_t n, const auto& offsets, const auto& steps) {
      for (int64_t j = 0; j < n; ++j) {
        z[j] = condition[offsets[0] + j * steps[0]] ? x[offsets[1] + j * steps[1]] : y[offsets[2] + j * steps[2]];
      }
      z += n;
    });
  });
}

// min(max(x, low), high): the result is high if low > high.
void Clip(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    const bool has_low = Has(call.inputs, 1), has_high = Has(call.inputs, 2);
    const A low = has_low ? static_cast<A>(In<T>(in, 1)[0]) : A{}, high = has_high ? static_cast<A>(In<T>(in, 2)[0]) : A{};
    Map(call.inputs[0].shape.elements(), In<T>(in, 0), Out<T>(out, 0), [=](A x) {
      if (has_low && x < low) x = low;
      if (has_high && x > high) x = high;
      return x;
    });
  });
}

NarrowRounding RoundingOf(const KernelCall& call) {
  NarrowRounding rounding{.saturate = call.attributes.Int("saturate", 1) != 0};
  const std::string power = call.attributes.String("round_mode", "up");
  if (power == "down") rounding.power = NarrowRounding::Power::kDown;
  if (power == "nearest") rounding.power = NarrowRounding::Power::kNearest;
  return rounding;
}

// Casts to and from a narrow type, through double, which represents all values of these types.
void CastNarrow(const KernelCall& call, const void* const* in, void* const* out) {
  const TensorView from = InputView(call, in, 0);
  const DType dtype = call.outputs[0].dtype;
  const NarrowRounding rounding = RoundingOf(call);
  const int64_t n = from.elements();
  if (IsNarrow(dtype)) {
    for (int64_t i = 0; i < n; ++i) Out<uint8_t>(out, 0)[i] = NarrowElement(dtype, ElementAsDouble(from, i), rounding);
    return;
  }
  WithType(dtype, [&]<typename To>(std::type_identity<To>) {
    for (int64_t i = 0; i < n; ++i) Out<To>(out, 0)[i] = ConvertElement<To>(ElementAsDouble(from, i));
  });
}

void Cast(const KernelCall& call, const void* const* in, void* const* out) {
  if (IsNarrow(call.inputs[0].dtype) || IsNarrow(call.outputs[0].dtype)) return CastNarrow(call, in, out);
  const int64_t n = call.inputs[0].shape.elements();
  WithType(call.inputs[0].dtype, [&]<typename From>(std::type_identity<From>) {
    WithType(call.outputs[0].dtype, [&]<typename To>(std::type_identity<To>) {
      const From* from = In<From>(in, 0);
      To* to = Out<To>(out, 0);
      for (int64_t i = 0; i < n; ++i) to[i] = ConvertElement<To, From>(from[i]);
    });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Cast", "", Cast}, {"CastLike", "", Cast},      {"Clip", "", Clip}, {"Max", "", Extreme<true>},
    {"Mean", "", Mean}, {"Min", "", Extreme<false>}, {"Sum", "", Sum},   {"Where", "", Where},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceMany() { return kKernels; }

}  // namespace gradloom

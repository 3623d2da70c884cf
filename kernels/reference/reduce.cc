// Reductions over axes, arg-extremes and running sums. Floating-point sums are in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "runtime/base/convert.h"

namespace gradloom {
namespace {

// The axes of the input, divided into kept and reduced ones.
struct Split {
  Shape kept, reduced;
  std::vector<int64_t> kept_strides, reduced_strides;
  bool noop = false;

  Split(const KernelCall& call, const void* const* in) {
    const Shape& shape = call.inputs[0].shape;
    const std::vector<int64_t> axes = InputInts(call, in, 1), strides = shape.strides();
    noop = axes.empty() && call.attributes.Int("noop_with_empty_axes", 0) != 0;
    std::vector<bool> is_reduced(static_cast<size_t>(shape.rank()), axes.empty() && !noop);
    for (int64_t axis : axes) is_reduced[static_cast<size_t>(AxisOf(call, axis, shape.rank()))] = true;
    for (size_t axis = 0; axis < is_reduced.size(); ++axis) {
      (is_reduced[axis] ? reduced : kept).push_back(shape[static_cast<int>(axis)]);
      (is_reduced[axis] ? reduced_strides : kept_strides).push_back(strides[axis]);
    }
  }
};

// A reduction as a fold: `start` returns an empty total, `add` adds an element, `finish` converts a total of n elements.
template <typename T, typename Total, typename Start, typename Add, typename Finish>
void Fold(const KernelCall& call, const void* const* in, void* const* out, Start start, Add add, Finish finish) {
  const Split split(call, in);
  const Nest<1> kept(split.kept, {split.kept_strides}), reduced(split.reduced, {split.reduced_strides});
  const int64_t count = split.reduced.elements();
  T* z = Out<T>(out, 0);
  kept.ForEachRow([&](int64_t rows, const auto& offset, const auto& step) {
    for (int64_t i = 0; i < rows; ++i) {
      const T* x = In<T>(in, 0) + offset[0] + i * step[0];
      Total total = start();
      if (count > 0) {
        reduced.ForEachRow([&](int64_t n, const auto& at, const auto& stride) {
          const T* y = x + at[0];
          const int64_t s = stride[0];
          for (int64_t j = 0; j < n; ++j) total = add(total, static_cast<Arithmetic<T>>(y[j * s]));
        });
      }
      *z++ = static_cast<T>(static_cast<Arithmetic<T>>(finish(total, count)));
    }
  });
}

// add(total, x) and finish(total, n) in the accumulator's type, starting from `start`.
template <int start, auto add, auto finish>
void Accumulate(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Total = Accumulator<T>;
    Fold<T, Total>(
        call, in, out, [] { return Total{start}; },
        [](Total total, auto x) { return static_cast<Total>(add(total, static_cast<Total>(x))); },
        [](Total total, int64_t n) {
          // Signed again, so that the mean or the root of a negative total is right.
          if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
            return ConvertElement<T>(finish(static_cast<int64_t>(total), n));
          else if constexpr (std::is_integral_v<T>)
            return ConvertElement<T>(finish(total, n));
          else
            return finish(total, n);
        });
  });
}

constexpr auto kTotal = [](auto total, int64_t) { return total; };
constexpr auto kPlus = [](auto total, auto x) { return total + x; };
constexpr auto kMean = [](auto total, int64_t n) {
  if constexpr (std::is_integral_v<decltype(total)>)
    return n == 0 ? decltype(total){0} : total / static_cast<decltype(total)>(n);
  else
    return total / static_cast<double>(n);
};
constexpr auto kTimes = [](auto total, auto x) { return total * x; };
constexpr auto kPlusSquare = [](auto total, auto x) { return total + x * x; };
constexpr auto kPlusAbs = [](auto total, auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>)
    return total + std::fabs(x);
  else
    return total + (static_cast<int64_t>(x) < 0 ? uint64_t{0} - x : x);
};
constexpr auto kRoot = [](auto total, int64_t) { return std::sqrt(static_cast<double>(total)); };
constexpr auto kLog = [](auto total, int64_t) { return std::log(static_cast<double>(total)); };

template <bool kLargest>
void Extreme(const KernelCall& call, const void* const* in, void* const* out) {
  WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    using Limits = std::numeric_limits<A>;
    A worst = kLargest ? Limits::lowest() : Limits::max();
    if constexpr (std::is_floating_point_v<A>) worst = kLargest ? -Limits::infinity() : Limits::infinity();
    Fold<T, A>(
        call, in, out, [=] { return worst; },
        [](A best, A x) {
          if (best != best) return best;
          return x != x || (kLargest ? x > best : x < best) ? x : best;
        },
        [](A best, int64_t) { return best; });
  });
}

// log(sum(exp(x))) as max + log(sum(exp(x - max))), which does not overflow.
struct LogSumExpTotal {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
};

void LogSumExp(const KernelCall& call, const void* const* in, void* const* out) {
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Fold<T, LogSumExpTotal>(
        call, in, out, [] { return LogSumExpTotal{}; },
        [](LogSumExpTotal total, auto element) {
          const double x = static_cast<double>(element);
          if (x != x || total.max != total.max) return LogSumExpTotal{std::nan(""), 0};
          if (x == -std::numeric_limits<double>::infinity()) return total;
          if (x <= total.max) {
            // The difference of two infinities of the same sign counts as 0.
            total.sum += x == total.max ? 1.0 : std::exp(x - total.max);
            return total;
          }
          const double scaled = total.sum == 0 ? 0 : total.sum * std::exp(total.max - x);
          return LogSumExpTotal{x, scaled + 1.0};
        },
        [](LogSumExpTotal total, int64_t) {
          return ConvertElement<Arithmetic<T>>(total.max + (total.sum == 0 ? 0 : std::log(total.sum)));
        });
  });
}

template <bool kLargest>
void ArgExtreme(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const bool last = call.attributes.Int("select_last_index", 0) != 0;
  const int64_t outer = Product(shape, 0, axis), n = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    int64_t* z = Out<int64_t>(out, 0);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const T* x = In<T>(in, 0) + o * n * inner + i;
        int64_t best = 0;
        for (int64_t j = 1; j < n; ++j) {
          const A a = static_cast<A>(x[j * inner]), b = static_cast<A>(x[best * inner]);
          if (b != b) break;
          if (a != a || (kLargest ? a > b : a < b) || (last && a == b)) best = j;
        }
        *z++ = best;
      }
    }
  });
}

// Running totals along an axis, from `start`, with f.
template <int start, auto f>
void Running(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, InputInts(call, in, 1).at(0), shape.rank());
  const bool exclusive = call.attributes.Int("exclusive", 0) != 0, reverse = call.attributes.Int("reverse", 0) != 0;
  const int64_t outer = Product(shape, 0, axis), n = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Total = Accumulator<T>;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        Total total = start;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = (o * n + (reverse ? n - 1 - j : j)) * inner + i;
          const Total next = f(total, static_cast<Total>(In<T>(in, 0)[at]));
          Out<T>(out, 0)[at] = static_cast<T>(static_cast<Arithmetic<T>>(exclusive ? total : next));
          total = next;
        }
      }
    }
  });
}

// gradloom.CumProdGrad(x, g, axis): with p the product before j and s = g_j + x_{j+1} s' (a recurrence from the end), the gradient of x_j
// is p * s. Exclusive products shift g by one.
void CumProdGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, InputInts(call, in, 2).at(0), shape.rank());
  const bool exclusive = call.attributes.Int("exclusive", 0) != 0, reverse = call.attributes.Int("reverse", 0) != 0;
  const int64_t outer = Product(shape, 0, axis), n = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> before(static_cast<size_t>(n));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = [&](int64_t j) { return (o * n + (reverse ? n - 1 - j : j)) * inner + i; };
        const auto x = [&](int64_t j) { return static_cast<double>(In<T>(in, 0)[at(j)]); };
        const auto g = [&](int64_t j) { return j < n ? static_cast<double>(In<T>(in, 1)[at(j)]) : 0.0; };
        double product = 1;
        for (int64_t j = 0; j < n; ++j) {
          before[static_cast<size_t>(j)] = product;
          product *= x(j);
        }
        double sum = 0;
        for (int64_t j = n; j-- > 0;) {
          sum = g(exclusive ? j + 1 : j) + (j + 1 < n ? x(j + 1) * sum : 0.0);
          Out<T>(out, 0)[at(j)] = static_cast<T>(static_cast<Arithmetic<T>>(before[static_cast<size_t>(j)] * sum));
        }
      }
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"ArgMax", "", ArgExtreme<true>},
    {"ArgMin", "", ArgExtreme<false>},
    {"CumProd", "", Running<1, kTimes>},
    {"CumProdGrad", "gradloom", CumProdGrad},
    {"CumSum", "", Running<0, kPlus>},
    {"ReduceL1", "", Accumulate<0, kPlusAbs, kTotal>},
    {"ReduceL2", "", Accumulate<0, kPlusSquare, kRoot>},
    {"ReduceLogSum", "", Accumulate<0, kPlus, kLog>},
    {"ReduceLogSumExp", "", LogSumExp},
    {"ReduceMax", "", Extreme<true>},
    {"ReduceMean", "", Accumulate<0, kPlus, kMean>},
    {"ReduceMin", "", Extreme<false>},
    {"ReduceProd", "", Accumulate<1, kTimes, kTotal>},
    {"ReduceSum", "", Accumulate<0, kPlus, kTotal>},
    {"ReduceSumSquare", "", Accumulate<0, kPlusSquare, kTotal>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceReduce() { return kKernels; }

}  // namespace gradloom

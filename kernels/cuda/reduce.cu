// Reductions over axes: one total per output, computed in several parts if there are few outputs.
#include <cmath>
#include <limits>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/exp_sum.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows/scratch.h"

namespace gradloom::cuda {
namespace {

using cuda_rows::PlanReduction;
using cuda_rows::ReductionPlan;

enum class Rule : uint8_t { kSum, kSumAbs, kSumSquare, kProduct, kMax, kMin };
enum class Finalizer : uint8_t { kNone, kMean, kRoot, kLog };

template <typename T>
inline constexpr bool kFloats = std::is_floating_point_v<Arithmetic<T>>;

// The type of a total. Integers wrap at 64 bits, then at their own width.
template <typename T>
using Wide = std::conditional_t<kFloats<T>, Arithmetic<T>, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

// Avoids the undefined overflow of signed integers.
template <typename A>
GRADLOOM_DEVICE A Plus(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <typename A>
GRADLOOM_DEVICE A Times(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <typename A>
GRADLOOM_DEVICE A Magnitude(A a) {
  if constexpr (std::is_floating_point_v<A>)
    return ::fabs(a);
  else if constexpr (std::is_signed_v<A>)
    return a < 0 ? static_cast<A>(uint64_t{0} - static_cast<uint64_t>(a)) : a;
  else
    return a;
}

// The result for a total of n elements.
template <typename T, typename A>
GRADLOOM_DEVICE T Finalize(Finalizer finalizer, A total, int64_t n) {
  using Floating = std::conditional_t<kFloats<T>, A, double>;
  switch (finalizer) {
    case Finalizer::kMean: return static_cast<T>(n == 0 && std::is_integral_v<A> ? A(0) : total / static_cast<A>(n));
    case Finalizer::kRoot: return Convert<T>(::sqrt(static_cast<Floating>(total)));
    case Finalizer::kLog: return Convert<T>(::log(static_cast<Floating>(total)));
    default: return static_cast<T>(total);
  }
}

// A reduction is a fold: Start returns an empty total, Add adds an element, Join combines two totals, Finish converts a total of n
// elements.
template <typename T>
struct Numbers {
  using A = Wide<T>;
  using Total = A;
  Rule rule = Rule::kSum;
  Finalizer finalizer = Finalizer::kNone;

  GRADLOOM_DEVICE A Start() const {
    switch (rule) {
      case Rule::kProduct: return A(1);
      case Rule::kMax: return kFloats<T> ? -std::numeric_limits<A>::infinity() : static_cast<A>(std::numeric_limits<T>::lowest());
      case Rule::kMin: return kFloats<T> ? std::numeric_limits<A>::infinity() : static_cast<A>(std::numeric_limits<T>::max());
      default: return A(0);
    }
  }

  GRADLOOM_DEVICE A Add(A total, T element) const {
    const A x = static_cast<A>(element);
    switch (rule) {
      case Rule::kSumAbs: return Plus(total, Magnitude(x));
      case Rule::kSumSquare: return Plus(total, Times(x, x));
      default: return Join(total, x);
    }
  }

  // NaN propagates through an extreme.
  GRADLOOM_DEVICE A Join(A a, A b) const {
    switch (rule) {
      case Rule::kProduct: return Times(a, b);
      case Rule::kMax: return a != a || a > b ? a : b;
      case Rule::kMin: return a != a || a < b ? a : b;
      default: return Plus(a, b);
    }
  }

  GRADLOOM_DEVICE T Finish(A total, int64_t n) const { return Finalize<T>(finalizer, total, n); }
};

// A sum with its accumulated rounding errors (Knuth's TwoSum). For float32 elements as accurate as a sum in double, and still bound by
// memory.
struct CompensatedSum {
  float sum = 0, compensation = 0;

  GRADLOOM_DEVICE CompensatedSum operator+(const CompensatedSum& other) const {
    const float total = sum + other.sum, added = total - sum;
    return {total, compensation + other.compensation + ((sum - (total - added)) + (other.sum - added))};
  }
  // The rest of an infinite sum is NaN.
  GRADLOOM_DEVICE float value() const { return sum - sum == 0 ? sum + compensation : sum; }
};

// Sums of the elements themselves, by far the most common reduction.
template <typename T>
struct Sums {
  using Total = std::conditional_t<std::is_same_v<T, float>, CompensatedSum, Arithmetic<T>>;
  Finalizer finalizer = Finalizer::kNone;

  GRADLOOM_DEVICE Total Start() const { return Total{}; }
  GRADLOOM_DEVICE Total Add(const Total& total, T element) const { return total + Total{element}; }
  GRADLOOM_DEVICE Total Join(const Total& a, const Total& b) const { return a + b; }
  GRADLOOM_DEVICE T Finish(const Total& total, int64_t n) const {
    if constexpr (std::is_same_v<Total, CompensatedSum>)
      return Finalize<T>(finalizer, total.value(), n);
    else
      return Finalize<T>(finalizer, total, n);
  }
};

// log(sum(exp(x))).
template <typename T>
struct LogSumExp {
  using A = std::conditional_t<kFloats<T>, Arithmetic<T>, double>;
  using Total = ExpSum<A>;

  GRADLOOM_DEVICE Total Start() const { return {}; }
  GRADLOOM_DEVICE Total Add(Total total, T element) const {
    total.Add(static_cast<A>(element));
    return total;
  }
  GRADLOOM_DEVICE Total Join(const Total& a, const Total& b) const { return JoinExpSums{}(a, b); }
  GRADLOOM_DEVICE T Finish(const Total& total, int64_t) const {
    return Convert<T>(total.largest + (total.sum == 0 ? A(0) : static_cast<A>(::log(total.sum))));
  }
};

// Element j of output i is at kept(i) + reduced(j) in the input.
struct Geometry {
  OffsetCalculator<1> kept, reduced;
  int64_t outputs = 1, count = 1, parts = 1, part_length = 1;
  bool rows = false;

  Geometry(const ReductionPlan& plan, const Shape& shape)
      : outputs(plan.outputs),
        count(plan.count),
        parts(plan.parts),
        part_length((plan.count + plan.parts - 1) / plan.parts),
        rows(plan.rows) {
    Shape kept_shape, reduced_shape;
    std::vector<int64_t> kept_strides, reduced_strides;
    const std::vector<int64_t> strides = shape.strides();
    for (size_t axis = 0; axis < plan.reduced.size(); ++axis) {
      (plan.reduced[axis] ? reduced_shape : kept_shape).push_back(shape[static_cast<int>(axis)]);
      (plan.reduced[axis] ? reduced_strides : kept_strides).push_back(strides[axis]);
    }
    kept = OffsetCalculator<1>(kept_shape, {kept_strides});
    reduced = OffsetCalculator<1>(reduced_shape, {reduced_strides});
  }
};

// One part of one output. If the innermost axis is reduced, a part is a run of elements that a group of threads reads together. If it is
// kept, threads with neighboring outputs read neighboring elements, and the parts take elements in turn.
template <typename T, typename Fold>
struct ReducePart {
  Geometry geometry;
  Fold fold;
  const T* in;
  typename Fold::Total* partials;  // [outputs, parts]
  T* out;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t i) const {
    const Geometry& g = geometry;
    const Quotient at = Divide(i, g.rows ? g.parts : g.outputs);
    const int64_t output = g.rows ? at.quotient : at.rest, part = g.rows ? at.rest : at.quotient;
    const int64_t begin = part * g.part_length, end = begin + g.part_length;
    const int64_t first = g.rows ? begin + group.thread() : part, step = g.rows ? group.threads() : g.parts;
    auto total = Total(in + g.kept(output).at[0], first, g.rows && end < g.count ? end : g.count, step);
    const Fold& f = fold;
    total = group.Reduce(total, [&f](const auto& a, const auto& b) { return f.Join(a, b); });
    if (group.thread() != 0) return;
    if (g.parts == 1)
      out[output] = fold.Finish(total, g.count);
    else
      partials[output * g.parts + part] = total;
  }

 private:
  // Elements first, first + step, ... before end. Along a single axis, they have a fixed stride.
  GRADLOOM_DEVICE typename Fold::Total Total(const T* from, int64_t first, int64_t end, int64_t step) const {
    const OffsetCalculator<1>& offsets = geometry.reduced;
    if (offsets.rank > 1) return Total(first, end, step, [=, &offsets](int64_t j) { return from[offsets(j).at[0]]; });
    const int64_t stride = offsets.strides[0][0];
    return Total(first, end, step, [=](int64_t j) { return from[j * stride]; });
  }

  // Loads four elements before the first is added, so that four loads are in flight.
  template <typename At>
  GRADLOOM_DEVICE typename Fold::Total Total(int64_t first, int64_t end, int64_t step, const At& at) const {
    typename Fold::Total total = fold.Start();
    int64_t j = first;
    for (; j + 3 * step < end; j += 4 * step) {
      T elements[4];
      for (int k = 0; k < 4; ++k) elements[k] = at(j + k * step);
      for (int k = 0; k < 4; ++k) total = fold.Add(total, elements[k]);
    }
    for (; j < end; j += step) total = fold.Add(total, at(j));
    return total;
  }
};

// Joins the parts of one output.
template <typename T, typename Fold>
struct JoinParts {
  int64_t parts, count;
  Fold fold;
  const typename Fold::Total* partials;
  T* out;

  template <typename Group>
  GRADLOOM_DEVICE void operator()(const Group& group, int64_t output) const {
    typename Fold::Total total = fold.Start();
    for (int64_t p = group.thread(); p < parts; p += group.threads()) total = fold.Join(total, partials[output * parts + p]);
    const Fold& f = fold;
    total = group.Reduce(total, [&f](const auto& a, const auto& b) { return f.Join(a, b); });
    if (group.thread() == 0) out[output] = fold.Finish(total, count);
  }
};

template <typename T, typename Fold>
void RunFold(const Geometry& g, const Fold& fold, const Launch& l) {
  using Total = typename Fold::Total;
  const ReducePart<T, Fold> part{g, fold, l.In<T>(0), static_cast<Total*>(l.scratch), l.Out<T>(0)};
  const JoinParts<T, Fold> join{g.parts, g.count, fold, part.partials, part.out};
  const int64_t all = g.outputs * g.parts;
  if constexpr (kFloats<T>) {
    if (!g.rows)
      ForEachRowByThread(all, l.stream, part);
    else if (g.part_length <= 1024)
      ForEachRowByWarp(all, l.stream, part);
    else
      ForEachRow(all, l.stream, part);
    if (g.parts > 1) ForEachRow(g.outputs, l.stream, join);
  } else {
    ForEachRow(all, l.stream, part);
  }
}

template <typename T, typename Fold>
std::unique_ptr<Kernel> MakeReduction(const KernelCall& call, Fold fold) {
  const Geometry geometry(PlanReduction(call), call.inputs[0].shape);
  return MakeKernel([=](const Launch& l) { RunFold<T>(geometry, fold, l); });
}

template <Rule kRule, Finalizer kFinalizer>
std::unique_ptr<Kernel> MakeReduce(const KernelCall& call, const KernelSite&) {
  return WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (kRule == Rule::kSum && kFloats<T>)
      return MakeReduction<T>(call, Sums<T>{kFinalizer});
    else
      return MakeReduction<T>(call, Numbers<T>{kRule, kFinalizer});
  });
}

std::unique_ptr<Kernel> MakeLogSumExp(const KernelCall& call, const KernelSite&) {
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) { return MakeReduction<T>(call, LogSumExp<T>{}); });
}

constexpr CudaKernel kReduceKernels[] = {
    {"cuda.ReduceSum", MakeReduce<Rule::kSum, Finalizer::kNone>},
    {"cuda.ReduceMean", MakeReduce<Rule::kSum, Finalizer::kMean>},
    {"cuda.ReduceL1", MakeReduce<Rule::kSumAbs, Finalizer::kNone>},
    {"cuda.ReduceL2", MakeReduce<Rule::kSumSquare, Finalizer::kRoot>},
    {"cuda.ReduceLogSum", MakeReduce<Rule::kSum, Finalizer::kLog>},
    {"cuda.ReduceLogSumExp", MakeLogSumExp},
    {"cuda.ReduceMax", MakeReduce<Rule::kMax, Finalizer::kNone>},
    {"cuda.ReduceMin", MakeReduce<Rule::kMin, Finalizer::kNone>},
    {"cuda.ReduceProd", MakeReduce<Rule::kProduct, Finalizer::kNone>},
    {"cuda.ReduceSumSquare", MakeReduce<Rule::kSumSquare, Finalizer::kNone>},
};

}  // namespace

std::span<const CudaKernel> ReduceKernels() { return kReduceKernels; }

}  // namespace gradloom::cuda

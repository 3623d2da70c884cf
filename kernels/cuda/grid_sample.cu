// GridSample and its gradient.
#include "kernels/cuda/grid_sample.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/rows/sample_scratch.h"

namespace gradloom::cuda {

GridPlan::GridPlan(const KernelCall& call)
    : nearest(call.attributes.String("mode", "linear") == "nearest"), align(call.attributes.Int("align_corners", 0) != 0) {
  const Shape &x = call.inputs[0].shape, &at = call.inputs[1].shape;
  const std::string name = call.attributes.String("padding_mode", "zeros");
  if (name != "zeros" && name != "border" && name != "reflection") {
    throw Error(ErrorCode::kAttr, "GridSample: padding_mode '" + Escaped(name) + "' is none of zeros, border and reflection");
  }
  padding = name == "zeros" ? GridPadding::kZeros : name == "border" ? GridPadding::kBorder : GridPadding::kReflection;
  batch = x[0];
  channels = x[1];
  for (int axis = x.rank() - 1; axis >= 2; --axis) {
    extent[axis - 2] = x[axis];
    stride[axis - 2] = inputs;
    inputs *= x[axis];
  }
  for (int axis = 1; axis + 1 < at.rank(); ++axis) points *= at[axis];
  grid.dtype = call.inputs[1].dtype;
}

namespace {

// A point of the grid of a sample, and some of its channels.
struct GridPlace {
  int64_t b, p, first, last;
};
GRADLOOM_DEVICE GridPlace PlaceOf(const GridPlan& plan, int64_t i, int64_t groups, int64_t channels) {
  const Quotient point = Divide(i, plan.points), group = Divide(point.quotient, groups);
  const int64_t first = group.rest * plan.channels_each, last = first + plan.channels_each;
  return {group.quotient, point.rest, first, last < channels ? last : channels};
}

int64_t GroupsOf(const GridPlan& plan, int64_t channels) {
  return plan.channels_each == 0 ? 0 : (channels + plan.channels_each - 1) / plan.channels_each;
}

template <typename T, int kDims, int kTaps>
void RunGridSample(const GridPlan& plan, const T* x, T* y, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t groups = GroupsOf(plan, plan.channels);
  ForEachElement(
      plan.batch * groups * plan.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const GridPlace place = PlaceOf(plan, i, groups, plan.channels);
        const GridPoint<A, kDims, kTaps> point(plan, place.b, place.p);
        for (int64_t c = place.first; c < place.last; ++c) {
          const T* const plane = x + (place.b * plan.channels + c) * plan.inputs;
          A sum = 0;
          point.ForEach([&](int64_t offset, A weight, const auto&) { sum += weight * static_cast<A>(plane[offset]); });
          y[(place.b * plan.channels + c) * plan.points + place.p] = static_cast<T>(sum);
        }
      });
}

// The gradient of the grid: a thread for each point.
template <typename T, int kDims, int kTaps>
void GridGradient(const GridPlan& plan, const T* x, const T* dy, T* dgrid, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      plan.batch * plan.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient place = Divide(i, plan.points);
        const GridPoint<A, kDims, kTaps> point(plan, place.quotient, place.rest);
        const T* const planes = x + place.quotient * plan.channels * plan.inputs;
        const T* const ups = dy + place.quotient * plan.channels * plan.points + place.rest;
        A sums[kDims] = {};
        point.ForEach([&](int64_t offset, A, const int(&tap)[kDims]) {
          A through = 0;
          for (int64_t c = 0; c < plan.channels; ++c) {
            through += static_cast<A>(ups[c * plan.points]) * static_cast<A>(planes[c * plan.inputs + offset]);
          }
          for (int d = 0; d < kDims; ++d) sums[d] += through * point.SlopeOf(d, tap);
        });
        for (int d = 0; d < kDims; ++d) dgrid[i * kDims + kDims - 1 - d] = static_cast<T>(sums[d]);
      });
}

GRADLOOM_DEVICE void AddAtomically(int64_t* to, int64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  *to += value;
#endif
}

// The gradient of X. Where a point draws from is data, so points add to elements; they do it in integers, whose sum is the same in any
// order. The unit of a plane is so small that the largest possible sum has 61 bits: errors are below the largest element of dY times
// 2^(bits - 61) a term. float64 has a second integer, for what the first leaves of each term.
struct PlaneSums {
  int64_t first, count;  // channels
  int64_t* sums;         // [batch, count, inputs, words]
  double* units;         // [batch, count]: 1 / unit, a power of two; NaN where some element of dY is not finite
  int bits;              // no more than 2^bits terms meet in an element
  double finer;          // units of the second integer in one of the first
};

template <typename T>
void FindUnits(const GridPlan& plan, const PlaneSums& to, const T* dy, cudaStream_t stream) {
  ForEachRow(
      plan.batch * to.count, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t plane) {
        const Quotient sample = Divide(plane, to.count);
        const T* const ups = dy + (sample.quotient * plan.channels + to.first + sample.rest) * plan.points;
        double largest = 0;
        for (int64_t p = block.thread(); p < plan.points; p += block.threads()) {
          const double up = ::fabs(static_cast<double>(static_cast<Arithmetic<T>>(ups[p])));
          largest = IsFinite(up) ? Largest()(largest, up) : HUGE_VAL;
        }
        largest = block.Reduce(largest, Largest());
        if (block.thread() != 0) return;
        int exponent = 0;
        if (IsFinite(largest)) ::frexp(largest, &exponent);
        to.units[plane] = IsFinite(largest) ? ::ldexp(1.0, exponent < -900 ? 900 : 61 - to.bits - exponent) : largest - largest;
      });
}

template <typename T, int kDims, int kTaps>
void AddToPlanes(const GridPlan& plan, const PlaneSums& to, const T* dy, cudaStream_t stream) {
  using A = Arithmetic<T>;
  constexpr int kWords = std::is_same_v<T, double> ? 2 : 1;
  const int64_t groups = GroupsOf(plan, to.count);
  ForEachElement(
      plan.batch * groups * plan.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const GridPlace place = PlaceOf(plan, i, groups, to.count);
        const GridPoint<A, kDims, kTaps> point(plan, place.b, place.p);
        for (int64_t c = place.first; c < place.last; ++c) {
          const int64_t plane = place.b * to.count + c;
          const double unit = to.units[plane];
          if (!IsFinite(unit)) continue;
          const A up = static_cast<A>(dy[(place.b * plan.channels + to.first + c) * plan.points + place.p]);
          point.ForEach([&](int64_t offset, A weight, const auto&) {
            double rest = static_cast<double>(weight * up) * unit;
            for (int word = 0; word < kWords; ++word) {
              const int64_t whole = ::llrint(rest);
              AddAtomically(to.sums + (plane * plan.inputs + offset) * kWords + word, whole);
              rest = (rest - static_cast<double>(whole)) * to.finer;
            }
          });
        }
      });
}

template <typename T>
void FinishPlanes(const GridPlan& plan, const PlaneSums& from, T* dx, cudaStream_t stream) {
  constexpr int kWords = std::is_same_v<T, double> ? 2 : 1;
  ForEachElement(
      plan.batch * from.count * plan.inputs, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient plane = Divide(i, plan.inputs), sample = Divide(plane.quotient, from.count);
        double sum = static_cast<double>(from.sums[i * kWords]);
        if (kWords == 2) sum += static_cast<double>(from.sums[i * kWords + 1]) / from.finer;
        dx[(sample.quotient * plan.channels + from.first + sample.rest) * plan.inputs + plane.rest] =
            static_cast<T>(static_cast<Arithmetic<T>>(sum / from.units[plane.quotient]));
      });
}

// Costs an atomic addition for each point, tap and channel, and 8 or 16 bytes of scratch memory for each element of some channels.
template <typename T, int kDims, int kTaps>
void InputGradient(GridPlan plan, const GridSampleScratch& scratch, const T* dy, T* dx, const Launch& l) {
  int64_t terms = plan.points;
  for (int d = 0; d < kDims; ++d) terms *= kTaps;
  int bits = 1;
  for (; terms > 1; terms = (terms + 1) / 2) ++bits;
  const double finer = std::ldexp(1.0, 61 - bits);
  char* const memory = static_cast<char*>(l.scratch);
  for (int64_t first = 0; first < plan.channels; first += scratch.channels) {
    const int64_t count = std::min(scratch.channels, plan.channels - first);
    const PlaneSums sums{first, count, reinterpret_cast<int64_t*>(memory), reinterpret_cast<double*>(memory + scratch.sums), bits, finer};
    plan.Share(count);
    int64_t* const words = sums.sums;
    ForEachElement(
        plan.batch * count * plan.inputs * scratch.words, l.stream, GRADLOOM_ON_DEVICE(int64_t i) { words[i] = 0; });
    FindUnits(plan, sums, dy, l.stream);
    AddToPlanes<T, kDims, kTaps>(plan, sums, dy, l.stream);
    FinishPlanes(plan, sums, dx, l.stream);
  }
}

// Calls f with the number of spatial dimensions and of taps along each, both known to the compiler.
template <typename F>
decltype(auto) WithTaps(const KernelCall& call, F&& f) {
  const std::string mode = call.attributes.String("mode", "linear");
  const auto with_dims = [&](auto taps) {
    switch (call.inputs[0].shape.rank()) {
      case 3: return f(std::integral_constant<int, 1>(), taps);
      case 4: return f(std::integral_constant<int, 2>(), taps);
      case 5: return f(std::integral_constant<int, 3>(), taps);
      default: break;
    }
    throw Error(ErrorCode::kUnsupported, "GridSample of " + call.inputs[0].shape.ToString());
  };
  if (mode == "nearest" || mode == "linear") return with_dims(std::integral_constant<int, 2>());
  if (mode == "cubic") return with_dims(std::integral_constant<int, 4>());
  throw Error(ErrorCode::kAttr, "GridSample: mode '" + Escaped(mode) + "' is none of linear, nearest and cubic");
}

}  // namespace

std::unique_ptr<Kernel> MakeGridSample(const KernelCall& call, const KernelSite&) {
  GridPlan plan(call);
  plan.Share(plan.channels);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return WithTaps(call, [&]<int kDims, int kTaps>(std::integral_constant<int, kDims>, std::integral_constant<int, kTaps>) {
      return Runs([plan](const Launch& l) { RunGridSample<T, kDims, kTaps>(plan.For(l), l.In<T>(0), l.Out<T>(0), l.stream); });
    });
  });
}

// Inputs: X, the grid and the gradient of Y.
std::unique_ptr<Kernel> MakeGridSampleGrad(const KernelCall& call, const KernelSite&) {
  const GridPlan plan(call);
  const GridSampleScratch scratch(call.inputs[0]);
  const WantedOutputs wanted(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return WithTaps(call, [&]<int kDims, int kTaps>(std::integral_constant<int, kDims>, std::integral_constant<int, kTaps>) {
      return Runs([=](const Launch& l) {
        const GridPlan now = plan.For(l);
        if (wanted.Has(0)) InputGradient<T, kDims, kTaps>(now, scratch, l.In<T>(2), wanted.Of<T>(l, 0), l);
        if (wanted.Has(1)) GridGradient<T, kDims, kTaps>(now, l.In<T>(0), l.In<T>(2), wanted.Of<T>(l, 1), l.stream);
      });
    });
  });
}

}  // namespace gradloom::cuda

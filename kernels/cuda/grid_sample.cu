// GridSample and its gradient.
#include "kernels/cuda/grid_sample.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/rows/sample_scratch.h"

namespace gradloom::cuda {

GridPlan::GridPlan(const KernelCall& call) : rules(GridRulesOf(call)) {
  const Shape &x = call.inputs[0].shape, &at = call.inputs[1].shape;
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

// A grid point of a sample, with a range of its channels.
struct GridTask {
  int64_t b, p, first, last;
};
GRADLOOM_DEVICE GridTask GridTaskOf(const GridPlan& plan, int64_t i, int64_t groups, int64_t channels) {
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
        const GridTask task = GridTaskOf(plan, i, groups, plan.channels);
        const GridPoint<A, kDims, kTaps> point(plan, task.b, task.p);
        for (int64_t c = task.first; c < task.last; ++c) {
          const T* const plane = x + (task.b * plan.channels + c) * plan.inputs;
          A sum = 0;
          point.ForEach([&](int64_t offset, A weight, const auto&) { sum += weight * static_cast<A>(plane[offset]); });
          y[(task.b * plan.channels + c) * plan.points + task.p] = static_cast<T>(sum);
        }
      });
}

// The gradient of the grid, one thread per point.
template <typename T, int kDims, int kTaps>
void GridGradient(const GridPlan& plan, const T* x, const T* dy, T* dgrid, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      plan.batch * plan.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient task = Divide(i, plan.points);
        const GridPoint<A, kDims, kTaps> point(plan, task.quotient, task.rest);
        const T* const planes = x + task.quotient * plan.channels * plan.inputs;
        const T* const dys = dy + task.quotient * plan.channels * plan.points + task.rest;
        A sums[kDims] = {};
        point.ForEach([&](int64_t offset, A, const int(&tap)[kDims]) {
          A d_weight = 0;
          for (int64_t c = 0; c < plan.channels; ++c) {
            d_weight += static_cast<A>(dys[c * plan.points]) * static_cast<A>(planes[c * plan.inputs + offset]);
          }
          for (int d = 0; d < kDims; ++d) sums[d] += d_weight * point.WeightDerivative(d, tap);
        });
        for (int d = 0; d < kDims; ++d) dgrid[i * kDims + kDims - 1 - d] = static_cast<T>(sums[d]);
      });
}

// A range of channels of X, whose gradients are summed together.
struct ChannelRange {
  int64_t first, count;
};

template <typename T, int kDims, int kTaps>
void AddToPlanes(const GridPlan& plan, const ChannelRange& range, const PlaneSums& to, const T* dy, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const int64_t groups = GroupsOf(plan, range.count);
  ForEachElement(
      plan.batch * groups * plan.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const GridTask task = GridTaskOf(plan, i, groups, range.count);
        const GridPoint<A, kDims, kTaps> point(plan, task.b, task.p);
        for (int64_t c = task.first; c < task.last; ++c) {
          const int64_t plane = task.b * range.count + c;
          const double unit = to.units[plane];
          if (!IsFinite(unit)) continue;
          const A gradient = static_cast<A>(dy[(task.b * plan.channels + range.first + c) * plan.points + task.p]);
          point.ForEach([&](int64_t offset, A weight, const auto&) {
            to.Add<kSumWords<T>>(plane, offset, static_cast<double>(weight * gradient), unit);
          });
        }
      });
}

template <typename T>
void FinishPlanes(const GridPlan& plan, const ChannelRange& range, const PlaneSums& from, T* dx, cudaStream_t stream) {
  ForEachElement(
      plan.batch * range.count * plan.inputs, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient plane = Divide(i, plan.inputs), sample = Divide(plane.quotient, range.count);
        dx[(sample.quotient * plan.channels + range.first + sample.rest) * plan.inputs + plane.rest] =
            static_cast<T>(static_cast<Arithmetic<T>>(from.Total<kSumWords<T>>(plane.quotient, plane.rest)));
      });
}

// The elements of dY that contribute to the planes of these channels.
template <typename T>
struct PlaneGradients {
  const T* dy;
  ChannelRange range;
  int64_t channels, points;

  GRADLOOM_DEVICE double operator()(int64_t plane, int64_t p) const {
    const Quotient sample = Divide(plane, range.count);
    const T gradient = dy[(sample.quotient * channels + range.first + sample.rest) * points + p];
    return static_cast<double>(static_cast<Arithmetic<T>>(gradient));
  }
};

// The gradient of X. Costs one atomic integer addition per point, tap and channel, and 8 or 16 bytes of scratch memory per element of the
// range of channels.
template <typename T, int kDims, int kTaps>
void InputGradient(GridPlan plan, const GridSampleScratch& scratch, const T* dy, T* dx, const Launch& l) {
  int64_t terms = plan.points;
  for (int d = 0; d < kDims; ++d) terms *= kTaps;
  char* const memory = static_cast<char*>(l.scratch);
  const PlaneSums sums(memory, memory + scratch.sums, plan.inputs, terms);
  for (int64_t first = 0; first < plan.channels; first += scratch.channels) {
    const ChannelRange range{first, std::min(scratch.channels, plan.channels - first)};
    plan.DivideChannels(range.count);
    BeginSums<kSumWords<T>>(sums, plan.batch * range.count, plan.points, PlaneGradients<T>{dy, range, plan.channels, plan.points},
                            l.stream);
    AddToPlanes<T, kDims, kTaps>(plan, range, sums, dy, l.stream);
    FinishPlanes(plan, range, sums, dx, l.stream);
  }
}

// Calls f with the number of spatial dimensions and the number of taps along each as compile-time constants.
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
  plan.DivideChannels(plan.channels);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return WithTaps(call, [&]<int kDims, int kTaps>(std::integral_constant<int, kDims>, std::integral_constant<int, kTaps>) {
      return MakeKernel([plan](const Launch& l) { RunGridSample<T, kDims, kTaps>(plan.For(l), l.In<T>(0), l.Out<T>(0), l.stream); });
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
      return MakeKernel([=](const Launch& l) {
        const GridPlan now = plan.For(l);
        if (wanted.Has(0)) InputGradient<T, kDims, kTaps>(now, scratch, l.In<T>(2), wanted.Of<T>(l, 0), l);
        if (wanted.Has(1)) GridGradient<T, kDims, kTaps>(now, l.In<T>(0), l.In<T>(2), wanted.Of<T>(l, 1), l.stream);
      });
    });
  });
}

}  // namespace gradloom::cuda

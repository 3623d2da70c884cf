// Pooling by definition. Gradients gather: an input point visits the windows that contain it.
#include <cmath>
#include <limits>

#include "kernels/cuda/max_windows.cuh"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/windows.cuh"

namespace gradloom::cuda {
namespace {

// The layout of planes of points: row-major, or channels-last.
struct PlaneOrder {
  int64_t planes;
  int64_t step;  // from a point to the next: 1, or the number of channels

  PlaneOrder(const KernelCall& call, const Shape& x) : planes(x[0] * x[1]), step(cuda_rows::HasChannelsLast(call, x.rank()) ? x[1] : 1) {}

  // The offset of a plane with this number of points.
  GRADLOOM_DEVICE int64_t Start(int64_t plane, int64_t points) const {
    if (step == 1) return plane * points;
    const Quotient image = Divide(plane, step);
    return image.quotient * step * points + image.rest;
  }

  // The plane and the point of element i in memory.
  struct Place {
    int64_t plane, point;
  };
  GRADLOOM_DEVICE Place At(int64_t i, int64_t points) const {
    const Quotient channel = Divide(i, step), point = Divide(channel.quotient, points);
    return {point.quotient * step + channel.rest, point.rest};
  }
};

// The points of a plane in the arithmetic type.
template <typename T>
struct Plane {
  const T* first;
  int64_t step;
  GRADLOOM_DEVICE Arithmetic<T> operator()(int64_t point) const { return static_cast<Arithmetic<T>>(first[point * step]); }
};

// The windows of all planes.
struct Pooling {
  Geometry g;
  PlaneOrder order;

  Pooling(const KernelCall& call, const Shape& x, const Shape& y)
      : g(WindowsOf(call.attributes, x, call.attributes.Ints("kernel_shape")), x, y), order(call, x) {}

  constexpr int64_t inputs() const { return order.planes * g.in_points(); }
  constexpr int64_t outputs() const { return order.planes * g.out_points(); }

  template <typename T>
  GRADLOOM_DEVICE Plane<T> Input(const T* x, int64_t plane) const {
    return {x + order.Start(plane, g.in_points()), order.step};
  }
  template <typename T>
  GRADLOOM_DEVICE Plane<T> Output(const T* y, int64_t plane) const {
    return {y + order.Start(plane, g.out_points()), order.step};
  }
};

// Calls f(block, output, its plane, its window) for all outputs. Small windows get one thread each, so that neighboring threads read
// neighboring elements.
template <typename F>
void ForEachOutput(const Pooling& p, cudaStream_t stream, const F& f) {
  const auto row = GRADLOOM_ON_DEVICE(const auto& block, int64_t at) {
    const PlaneOrder::Place place = p.order.At(at, p.g.out_points());
    f(block, at, place.plane, PointOf(p.g.out, place.point));
  };
  if (p.g.taps() <= 64) return ForEachRowByThread(p.outputs(), stream, row);
  ForEachRowOf(p.outputs(), p.g.taps(), p.order.step, stream, row);
}

// Calls f(input, its plane, its point) for all inputs.
template <typename F>
void ForEachInput(const Pooling& p, cudaStream_t stream, const F& f) {
  ForEachElement(
      p.inputs(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const PlaneOrder::Place place = p.order.At(i, p.g.in_points());
        f(i, place.plane, PointOf(p.g.in, place.point));
      });
}

// An element and its point; -1: none.
template <typename R>
struct Candidate {
  R value;
  int64_t at;
};

// The larger of two candidates, NaN being the largest; the first one on ties.
struct First {
  template <typename R>
  GRADLOOM_DEVICE Candidate<R> operator()(const Candidate<R>& a, const Candidate<R>& b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
    if (a.value > b.value) return a;
    if (b.value > a.value) return b;
    return a.at < b.at ? a : b;
  }
};

// The first maximum of a window; -1 if the window contains only padding.
template <typename T, typename Threads>
GRADLOOM_DEVICE int64_t LargestPoint(const Threads& block, const Geometry& g, const Point3& window, const Plane<T>& plane) {
  using R = Arithmetic<T>;
  Candidate<R> best{R(0), -1};
  ForEachTap(block, g, window, [&](int64_t i, int64_t) { best = First()(best, Candidate<R>{plane(i), i}); });
  return block.Reduce(best, First()).at;
}

template <typename T>
GRADLOOM_DEVICE T Lowest() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::lowest();
  else
    return static_cast<T>(static_cast<Arithmetic<T>>(-INFINITY));
}

// ONNX's index with the spatial dimensions in column-major order.
GRADLOOM_DEVICE int64_t ColumnMajor(const Geometry& g, int64_t point) {
  const Point3 p = PointOf(g.in, point);
  return (p.at[2] * g.in[1] + p.at[1]) * g.in[0] + p.at[0];
}

// Whether a thread can take kWide<T> neighboring channels of a point.
template <typename T>
bool HasChannelWords(const Pooling& p) {
  return p.order.step > 1 && p.order.step % kWide<T> == 0 && ChannelWindows::Serve(p.g, p.inputs() / kWide<T>, p.outputs() / kWide<T>);
}

template <typename T>
void MaxPoolWords(const Pooling& p, const T* x, T* y, cudaStream_t stream) {
  constexpr int kWidth = kWide<T>;
  auto* const words = reinterpret_cast<AlignedVector<T, kWidth>*>(y);
  ForEachMaxima<kWidth>(
      ChannelWindows(p.g, p.order.step / kWidth), p.outputs(), x, stream,
      GRADLOOM_ON_DEVICE(int64_t i, const Maxima<kWidth, T>& maxima) { words[i] = maxima.values; });
}

template <typename T>
void MaxPool(const Pooling& p, bool column_major, const T* x, T* y, int64_t* indices, cudaStream_t stream) {
  if constexpr (!std::is_integral_v<T>) {
    if (indices == nullptr && HasChannelWords<T>(p)) return MaxPoolWords(p, x, y, stream);
  }
  ForEachOutput(
      p, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t at, int64_t plane, const Point3& window) {
        const Plane<T> from = p.Input(x, plane);
        const int64_t largest = LargestPoint(block, p.g, window, from);
        if (block.thread() != 0) return;
        if (y != nullptr) y[at] = largest < 0 ? Lowest<T>() : from.first[largest * from.step];
        // Indices are in row-major order, whatever the layout of x.
        const int64_t start = plane * p.g.in_points();
        if (indices != nullptr) indices[at] = largest < 0 ? -1 : start + (column_major ? ColumnMajor(p.g, largest) : largest);
      });
}

// Through the numbers of the maxima among the kernel elements, a byte per output.
template <typename T>
void MaxPoolGradWords(const Pooling& p, const T* x, const T* dy, T* dx, uint8_t* taps, cudaStream_t stream) {
  constexpr int kWidth = kWide<T>;
  const ChannelWindows windows(p.g, p.order.step / kWidth);
  auto* const words = reinterpret_cast<AlignedVector<uint8_t, kWidth>*>(taps);
  ForEachMaxima<kWidth>(
      windows, p.outputs(), x, stream, GRADLOOM_ON_DEVICE(int64_t i, const Maxima<kWidth, T>& maxima) { words[i] = maxima.taps; });
  SumAtMaxima<kWidth>(windows, p.inputs(), taps, dy, dx, stream);
}

// First stores the maxima of all windows in `largest`.
template <typename T>
void MaxPoolGrad(const Pooling& p, const T* x, const T* dy, T* dx, void* scratch, cudaStream_t stream) {
  using R = Arithmetic<T>;
  if (HasChannelWords<T>(p)) return MaxPoolGradWords(p, x, dy, dx, static_cast<uint8_t*>(scratch), stream);
  auto* const largest = static_cast<int32_t*>(scratch);
  ForEachOutput(
      p, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t at, int64_t plane, const Point3& window) {
        const int64_t found = LargestPoint(block, p.g, window, p.Input(x, plane));
        if (block.thread() == 0) largest[at] = static_cast<int32_t>(found);
      });
  ForEachInput(
      p, stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane, const Point3& point) {
        const Plane<T> slopes = p.Output(dy, plane);
        const Plane<int32_t> points = p.Output<int32_t>(largest, plane);
        const int64_t own = NumberOf(p.g.in, point);
        R sum = 0;
        ForEachWindowAt(p.g, point, [&](int64_t o, int64_t) {
          if (points(o) == own) sum += slopes(o);
        });
        dx[i] = static_cast<T>(sum);
      });
}

// The divisor of an average over a window, at least 1: the number of its points inside the input, or inside the padded input. In ceil mode,
// a window may extend past the padding.
template <typename R>
GRADLOOM_DEVICE R Divisor(const Geometry& g, const Point3& window, bool include_pad) {
  int64_t points = 1;
  for (int dim = 0; dim < 3; ++dim) {
    const int64_t o = window.at[dim];
    points *= include_pad ? g.TapsBefore(dim, o, g.in[dim] + g.pad_end[dim]) : g.TapsBefore(dim, o, g.in[dim]) - g.TapsBefore(dim, o, 0);
  }
  return static_cast<R>(points > 1 ? points : 1);
}

template <typename T>
void AveragePool(const Pooling& p, bool include_pad, const T* x, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachOutput(
      p, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t at, int64_t plane, const Point3& window) {
        const Plane<T> from = p.Input(x, plane);
        R sum = 0;
        ForEachTap(block, p.g, window, [&](int64_t i, int64_t) { sum += from(i); });
        sum = block.Reduce(sum, Sum{});
        if (block.thread() == 0) y[at] = static_cast<T>(sum / Divisor<R>(p.g, window, include_pad));
      });
}

template <typename T>
void AveragePoolGrad(const Pooling& p, bool include_pad, const T* dy, T* dx, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachInput(
      p, stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane, const Point3& point) {
        const Plane<T> from = p.Output(dy, plane);
        R sum = 0;
        ForEachWindowAt(p.g, point, [&](int64_t o, int64_t) { sum += from(o) / Divisor<R>(p.g, PointOf(p.g.out, o), include_pad); });
        dx[i] = static_cast<T>(sum);
      });
}

// x^power for x >= 0.
template <typename R>
GRADLOOM_DEVICE R Power(R x, R power) {
  if (power == 1) return x;
  if (power == 2) return x * x;
  return static_cast<R>(::pow(x, power));
}

template <typename R>
GRADLOOM_DEVICE R Magnitude(R x) {
  return static_cast<R>(::fabs(x));
}

template <typename T>
void LpPool(const Pooling& p, double power, const T* x, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachOutput(
      p, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t at, int64_t plane, const Point3& window) {
        const Plane<T> from = p.Input(x, plane);
        R sum = 0;
        ForEachTap(block, p.g, window, [&](int64_t i, int64_t) { sum += Power(Magnitude(from(i)), static_cast<R>(power)); });
        sum = block.Reduce(sum, Sum{});
        if (block.thread() == 0) y[at] = static_cast<T>(Power(sum, static_cast<R>(1 / power)));
      });
}

// dx = dy * sign(x) |x|^(p-1) y^(1-p), and 0 for an element that is 0, whatever p.
template <typename T>
void LpPoolGrad(const Pooling& p, double power, const T* x, const T* y, const T* dy, T* dx, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachInput(
      p, stream, GRADLOOM_ON_DEVICE(int64_t i, int64_t plane, const Point3& point) {
        const Plane<T> norms = p.Output(y, plane), slopes = p.Output(dy, plane);
        R sum = 0;
        ForEachWindowAt(p.g, point, [&](int64_t o, int64_t) {
          if (norms(o) != 0) sum += slopes(o) * Power(norms(o), static_cast<R>(1 - power));
        });
        const R own = static_cast<R>(x[i]), slope = Power(Magnitude(own), static_cast<R>(power - 1));
        dx[i] = static_cast<T>(own == 0 ? R(0) : own < 0 ? -slope * sum : slope * sum);
      });
}

// The larger of two numbers, NaN being the largest.
struct LargestOrNan {
  template <typename R>
  GRADLOOM_DEVICE R operator()(R a, R b) const {
    return a > b || a != a ? a : b;
  }
};

struct GlobalAverage {
  template <typename R, typename Threads>
  GRADLOOM_DEVICE R Of(const Threads& block, int64_t n, const auto& at) const {
    return SumOf<R>(block, n, at) / static_cast<R>(n);
  }
};
struct GlobalMax {
  template <typename R, typename Threads>
  GRADLOOM_DEVICE R Of(const Threads& block, int64_t n, const auto& at) const {
    R largest = Lowest<R>();
    for (int64_t k = block.thread(); k < n; k += block.threads()) largest = LargestOrNan()(largest, at(k));
    return block.Reduce(largest, LargestOrNan());
  }
};
struct GlobalLp {
  double power;
  template <typename R, typename Threads>
  GRADLOOM_DEVICE R Of(const Threads& block, int64_t n, const auto& at) const {
    const R exponent = static_cast<R>(power);
    const R sum = SumOf<R>(block, n, [&](int64_t k) { return Power(Magnitude(at(k)), exponent); });
    return Power(sum, static_cast<R>(1 / power));
  }
};

template <typename T, typename F>
void PoolPlanes(const PlaneOrder& order, int64_t points, const F& pool, const T* x, T* y, cudaStream_t stream) {
  ForEachRowOf(
      order.planes, points, order.step, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t plane) {
        const auto value = pool.template Of<Arithmetic<T>>(block, points, Plane<T>{x + order.Start(plane, points), order.step});
        if (block.thread() == 0) y[plane] = static_cast<T>(value);
      });
}

template <typename F>
std::unique_ptr<Kernel> MakePlanePooling(const KernelCall& call, const F& pool) {
  const Shape& x = call.inputs[0].shape;
  const PlaneOrder order(call, x);
  const int64_t points = order.planes == 0 ? 0 : x.elements() / order.planes;
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { PoolPlanes(order, points, pool, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeGlobalAverage(const KernelCall& call, const KernelSite&) { return MakePlanePooling(call, GlobalAverage()); }
std::unique_ptr<Kernel> MakeGlobalMax(const KernelCall& call, const KernelSite&) { return MakePlanePooling(call, GlobalMax()); }
std::unique_ptr<Kernel> MakeGlobalLp(const KernelCall& call, const KernelSite&) {
  return MakePlanePooling(call, GlobalLp{static_cast<double>(call.attributes.Int("p", 2))});
}

std::unique_ptr<Kernel> MakeMaxPool(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.inputs[0].shape, call.outputs[0].shape);
  const bool column_major = call.attributes.Int("storage_order", 0) == 1, has_indices = Has(call.outputs, 1);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel(
        [=](const Launch& l) { MaxPool(p, column_major, l.In<T>(0), l.Out<T>(0), has_indices ? l.Out<int64_t>(1) : nullptr, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeMaxPoolGrad(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.inputs[0].shape, call.inputs[1].shape);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { MaxPoolGrad(p, l.In<T>(0), l.In<T>(1), l.Out<T>(0), l.scratch, l.stream); });
  });
}

bool IncludesPad(const KernelCall& call) { return call.attributes.Int("count_include_pad", 0) != 0; }

std::unique_ptr<Kernel> MakeAveragePool(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.inputs[0].shape, call.outputs[0].shape);
  const bool include_pad = IncludesPad(call);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { AveragePool(p, include_pad, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeAveragePoolGrad(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.outputs[0].shape, call.inputs[0].shape);
  const bool include_pad = IncludesPad(call);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { AveragePoolGrad(p, include_pad, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeLpPool(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.inputs[0].shape, call.outputs[0].shape);
  const double power = static_cast<double>(call.attributes.Int("p", 2));
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { LpPool(p, power, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeLpPoolGrad(const KernelCall& call, const KernelSite&) {
  const Pooling p(call, call.inputs[0].shape, call.inputs[1].shape);
  const double power = static_cast<double>(call.attributes.Int("p", 2));
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { LpPoolGrad(p, power, l.In<T>(0), l.In<T>(1), l.In<T>(2), l.Out<T>(0), l.stream); });
  });
}

constexpr CudaKernel kPoolingKernels[] = {
    {"cuda.MaxPool", MakeMaxPool},
    {"cuda.gradloom.MaxPoolGrad", MakeMaxPoolGrad},
    {"cuda.AveragePool", MakeAveragePool},
    {"cuda.gradloom.AveragePoolGrad", MakeAveragePoolGrad},
    {"cuda.LpPool", MakeLpPool},
    {"cuda.gradloom.LpPoolGrad", MakeLpPoolGrad},
    {"cuda.GlobalAveragePool", MakeGlobalAverage},
    {"cuda.GlobalMaxPool", MakeGlobalMax},
    {"cuda.GlobalLpPool", MakeGlobalLp},
};

}  // namespace

std::span<const CudaKernel> PoolingKernels() { return kPoolingKernels; }

}  // namespace gradloom::cuda

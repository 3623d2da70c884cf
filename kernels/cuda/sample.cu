// Resize and its gradient. Along each axis, an output element is a weighted sum of neighboring input elements, which are listed in tables
// made beforehand. A thread then computes an element from all axes at once; for the gradient, from the outputs that read it.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/resize.cuh"

namespace gradloom::cuda {
namespace {

// The elements of X along one axis that an output element reads.
template <typename A>
struct ResizeTaps {
  ResizeEntry<A> entry;
  ResizeFalloff<A> falloff;
  int64_t extent = 1, stride = 0;

  GRADLOOM_DEVICE int64_t count() const { return entry.count; }
  GRADLOOM_DEVICE int64_t Offset(int64_t k) const { return ClampIndex(entry.first() + k, extent) * stride; }
  GRADLOOM_DEVICE A Weight(int64_t k) const { return entry.norm * falloff(entry.shrink * (entry.base + static_cast<A>(k))); }
};

// The elements of Y along one axis that read input coordinate x.
template <typename A>
struct ResizeGradientTaps {
  const ResizeEntry<A>* entries = nullptr;  // null: one element with weight 1
  ResizeReaders readers{0, 1};
  ResizeFalloff<A> falloff;
  bool exclude_outside = false;
  int64_t x = 0, extent = 1, stride = 0;

  GRADLOOM_DEVICE int64_t count() const { return readers.end - readers.begin; }
  GRADLOOM_DEVICE int64_t Offset(int64_t k) const { return (readers.begin + k) * stride; }
  GRADLOOM_DEVICE A Weight(int64_t k) const {
    if (entries == nullptr) return 1;
    const ResizeEntry<A> entry = entries[readers.begin + k];
    if (entry.outside) return 0;
    // Reads beyond an end are clamped to it.
    int64_t first = x - entry.first(), last = first;
    if (!exclude_outside && x == 0) first = 0;
    if (!exclude_outside && x == extent - 1) last = entry.count - 1;
    A sum = 0;
    for (int64_t i = first < 0 ? 0 : first; i <= last && i < entry.count; ++i) {
      sum += falloff(entry.shrink * (entry.base + static_cast<A>(i)));
    }
    return sum * entry.norm;
  }
};

// The weighted sum over all combinations of the axes' taps.
template <int kAxes, typename A, typename Taps, typename T>
GRADLOOM_DEVICE A WeightedSum(const Taps* taps, const T* from) {
  if constexpr (kAxes == 0) {
    return static_cast<A>(*from);
  } else {
    A sum = 0;
    for (int64_t k = 0; k < taps->count(); ++k) {
      const A weight = taps->Weight(k);
      if (weight != 0) sum += weight * WeightedSum<kAxes - 1, A>(taps + 1, from + taps->Offset(k));
    }
    return sum;
  }
}

template <typename T>
using ComputeType = std::conditional_t<kIsHalf<T> || std::is_same_v<T, float>, float, double>;

GRADLOOM_DEVICE int64_t Coordinate(int64_t i, int64_t stride, int64_t extent) { return Divide(Divide(i, stride).quotient, extent).rest; }

// Element i of Y. `base` points to the element of X at its position along the axes that are not resized.
template <int kAxes, typename T, typename A>
GRADLOOM_DEVICE T Resized(const ResizePlan& plan, const ResizeEntry<A>* entries, int64_t i, const T* base, A extrapolation) {
  const ResizeFalloff<A> falloff{plan.sampling.rules.mode == ResizeMode::kCubic, static_cast<A>(plan.sampling.rules.cubic_a)};
  ResizeTaps<A> taps[kAxes];
  bool outside = false;
  for (int k = 0; k < kAxes; ++k) {
    taps[k].falloff = falloff;
    if (k >= plan.count) continue;
    const ResizeAxis& axis = plan.axes[k];
    taps[k].entry = entries[axis.entry + Coordinate(i, axis.out_stride, axis.out)];
    taps[k].extent = axis.in;
    taps[k].stride = axis.in_stride;
    outside = outside || taps[k].entry.outside;
  }
  return Saturated<T>(outside ? extrapolation : WeightedSum<kAxes, A>(taps, base));
}

// Element i of the gradient of X, from the gradient of Y in the same way.
template <int kAxes, typename T, typename A>
GRADLOOM_DEVICE T ResizedGradient(const ResizePlan& plan, const ResizeEntry<A>* entries, const ResizeReaders* readers, int64_t i,
                                  const T* base) {
  const ResizeFalloff<A> falloff{plan.sampling.rules.mode == ResizeMode::kCubic, static_cast<A>(plan.sampling.rules.cubic_a)};
  ResizeGradientTaps<A> taps[kAxes];
  for (int k = 0; k < kAxes; ++k) {
    taps[k].falloff = falloff;
    if (k >= plan.count) continue;
    const ResizeAxis& axis = plan.axes[k];
    const int64_t x = Coordinate(i, axis.in_stride, axis.in);
    taps[k].entries = entries + axis.entry;
    taps[k].readers = readers[axis.range + x];
    taps[k].exclude_outside = plan.sampling.rules.exclude_outside;
    taps[k].x = x;
    taps[k].extent = axis.in;
    taps[k].stride = axis.out_stride;
  }
  return static_cast<T>(WeightedSum<kAxes, A>(taps, base));
}

// Maps the elements of `to` to those of `from`, at index 0 along the resized axes.
OffsetCalculator<1> UnresizedOffsets(const KernelCall& call, const Shape& to, const Shape& from) {
  std::vector<int64_t> strides = from.strides();
  for (int64_t axis : call.attributes.Ints("axes")) strides[static_cast<size_t>(AxisOf(call, axis, from.rank()))] = 0;
  if (call.attributes.Ints("axes").empty()) std::fill(strides.begin(), strides.end(), 0);
  return OffsetCalculator<1>(to, {strides});
}

template <int kAxes, typename T>
void RunResize(const ResizePlan& plan, const OffsetCalculator<1>& offsets, int64_t n, const T* x, T* y, ComputeType<T> extrapolation,
               void* scratch, cudaStream_t stream) {
  using A = ComputeType<T>;
  ResizeEntry<A>* const entries = static_cast<ResizeEntry<A>*>(scratch);
  MakeEntries(plan, entries, stream);
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { y[i] = Resized<kAxes>(plan, entries, i, x + offsets(i).at[0], extrapolation); });
}

template <int kAxes, typename T>
void RunResizeGrad(const ResizePlan& plan, const OffsetCalculator<1>& offsets, int64_t n, const T* dy, T* dx, void* scratch,
                   cudaStream_t stream) {
  using A = ComputeType<T>;
  ResizeEntry<A>* const entries = static_cast<ResizeEntry<A>*>(scratch);
  ResizeReaders* const readers = reinterpret_cast<ResizeReaders*>(static_cast<char*>(scratch) + plan.entries * kResizeEntryBytes);
  MakeEntries(plan, entries, stream);
  FindReaders(plan, entries, readers, stream);
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { dx[i] = ResizedGradient<kAxes>(plan, entries, readers, i, dy + offsets(i).at[0]); });
}

// Calls f with a compile-time number of axes that is at least `count`.
template <typename T, typename F>
void WithAxes(int count, F&& f) {
  if constexpr (kIsHalf<T> || std::is_floating_point_v<T>) {
    if (count <= 2) return f(std::integral_constant<int, 2>());
  }
  if (count <= 4) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, kMaxAxes>());
}

std::unique_ptr<Kernel> MakeResize(const KernelCall& call, const KernelSite&) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const OffsetCalculator<1> offsets = UnresizedOffsets(call, to, from);
  const int64_t n = to.elements();
  double extrapolation = call.attributes.Float("extrapolation_value", 0);
  // As in QuantizeLinear, NaN becomes the lowest integer.
  if (std::isnan(extrapolation) && IsInteger(call.inputs[0].dtype)) extrapolation = -std::numeric_limits<double>::infinity();
  return WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, plan = ResizePlan(call, from, to)](const Launch& l) {
      WithAxes<T>(plan.count, [&]<int kAxes>(std::integral_constant<int, kAxes>) {
        RunResize<kAxes>(plan.For(l), offsets, n, l.In<T>(0), l.Out<T>(0), static_cast<ComputeType<T>>(extrapolation), l.scratch, l.stream);
      });
    });
  });
}

// Input 0 is the gradient of Y.
std::unique_ptr<Kernel> MakeResizeGrad(const KernelCall& call, const KernelSite&) {
  const Shape &from = call.outputs[0].shape, &to = call.inputs[0].shape;
  const OffsetCalculator<1> offsets = UnresizedOffsets(call, from, to);
  const int64_t n = from.elements();
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, plan = ResizePlan(call, from, to)](const Launch& l) {
      WithAxes<T>(plan.count, [&]<int kAxes>(std::integral_constant<int, kAxes>) {
        RunResizeGrad<kAxes>(plan.For(l), offsets, n, l.In<T>(0), l.Out<T>(0), l.scratch, l.stream);
      });
    });
  });
}

constexpr CudaKernel kSampleKernels[] = {
    {"cuda.Resize", MakeResize},
    {"cuda.gradloom.ResizeGrad", MakeResizeGrad},
    {"cuda.GridSample", MakeGridSample},
    {"cuda.gradloom.GridSampleGrad", MakeGridSampleGrad},
};

}  // namespace

std::span<const CudaKernel> SampleKernels() { return kSampleKernels; }

}  // namespace gradloom::cuda

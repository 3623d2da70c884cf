// Images as columns of windows and back, and MaxUnpool.
#include "kernels/cuda/atomics.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/rows/unfold.h"

namespace gradloom::cuda {
namespace {

// The windows of an image, along each axis and in total.
struct Windows {
  int rank = 0;
  AxisArray image, block, counts, strides, dilations, pads;
  int64_t points = 1, taps = 1, windows = 1;

  explicit Windows(const cuda_rows::Columns& c)
      : rank(static_cast<int>(c.image.size())), image(c.image), block(c.block), strides(c.strides), dilations(c.dilations) {
    for (int d = 0; d < rank; ++d) {
      pads.at[d] = c.pads[static_cast<size_t>(d)];
      counts.at[d] = c.Count(static_cast<size_t>(d));
      points *= image.at[d];
      taps *= block.at[d];
      windows *= counts.at[d];
    }
  }

  // The point that a tap of a window reads; -1: padding.
  GRADLOOM_DEVICE int64_t PointOf(int64_t tap, int64_t window) const {
    int64_t point = 0, scale = 1;
    bool inside = true;
    for (int d = rank - 1; d >= 0; --d) {
      const Quotient t = Divide(tap, block[d]), w = Divide(window, counts[d]);
      const int64_t at = w.rest * strides[d] - pads[d] + t.rest * dilations[d];
      inside = inside && at >= 0 && at < image[d];
      point += at * scale;
      scale *= image[d];
      tap = t.quotient;
      window = w.quotient;
    }
    return inside ? point : -1;
  }

  // The window whose tap reads this point, or -1.
  GRADLOOM_DEVICE int64_t WindowOf(int64_t tap, int64_t point) const {
    int64_t window = 0, scale = 1;
    bool there = true;
    for (int d = rank - 1; d >= 0; --d) {
      const Quotient t = Divide(tap, block[d]), p = Divide(point, image[d]);
      const int64_t from = p.rest + pads[d] - t.rest * dilations[d];
      const int64_t at = from < 0 ? 0 : from / strides[d];
      there = there && from == at * strides[d] && at < counts[d];
      window += at * scale;
      scale *= counts[d];
      tap = t.quotient;
      point = p.quotient;
    }
    return there ? window : -1;
  }
};

// `planes` is images times channels.
template <typename T>
void Fold(int64_t planes, const Windows& w, const T* columns, T* image, cudaStream_t stream) {
  ForEachElement(
      planes * w.points, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, w.points);
        Arithmetic<T> sum = 0;
        for (int64_t tap = 0; tap < w.taps; ++tap) {
          const int64_t window = w.WindowOf(tap, at.rest);
          if (window >= 0) sum += static_cast<Arithmetic<T>>(columns[(at.quotient * w.taps + tap) * w.windows + window]);
        }
        image[i] = static_cast<T>(sum);
      });
}

template <typename T>
void Unfold(int64_t planes, const Windows& w, const T* image, T* columns, cudaStream_t stream) {
  ForEachElement(
      planes * w.taps * w.windows, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient row = Divide(i, w.windows), plane = Divide(row.quotient, w.taps);
        const int64_t point = w.PointOf(plane.rest, row.rest);
        columns[i] = point < 0 ? static_cast<T>(0) : image[plane.quotient * w.points + point];
      });
}

std::unique_ptr<Kernel> MakeCol2Im(const KernelCall& call, const KernelSite&) {
  const Windows windows{cuda_rows::Columns(call)};
  const int64_t planes = call.outputs[0].shape.elements() / windows.points;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Fold(planes, windows, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeIm2Col(const KernelCall& call, const KernelSite&) {
  const Windows windows{cuda_rows::Columns(call)};
  const int64_t planes = call.inputs[0].shape.elements() / windows.points;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Unfold(planes, windows, l.In<T>(0), l.Out<T>(0), l.stream); });
  });
}

// Finds the source element of each target, before elements are copied: if several have the same target, the last one wins, whatever the
// order of execution.
void FindSources(int64_t n, const Indices& targets, const IndexCalculator& index_of, int64_t points, const AxisArray& steps,
                 int64_t outputs, int64_t* sources, const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      outputs, stream, GRADLOOM_ON_DEVICE(int64_t i) { sources[i] = -1; });
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t target = fault.Checked(targets[i], points);
        if (target < 0) return;
        int64_t index[kMaxAxes], to = 0;
        index_of(target, index);
        for (int axis = 0; axis < index_of.rank; ++axis) to += index[axis] * steps[axis];
        AtomicMax(sources + to, i);
      });
}

template <typename T>
void TakeSources(int64_t outputs, const int64_t* sources, const T* x, T* y, cudaStream_t stream) {
  ForEachElement(
      outputs, stream, GRADLOOM_ON_DEVICE(int64_t i) { y[i] = sources[i] < 0 ? T{} : x[sources[i]]; });
}

std::unique_ptr<Kernel> MakeMaxUnpool(const KernelCall& call, const KernelSite& site) {
  const Shape plain = cuda_rows::UnpooledShape(call), &y = call.outputs[0].shape;
  const int64_t n = call.inputs[0].shape.elements(), outputs = y.elements(), points = plain.elements();
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, index_of = IndexCalculator(plain), steps = AxisArray(y.strides()), wide = IsWide(call.inputs[1]),
                       fault = IndexFault(site)](const Launch& l) {
      auto* const sources = static_cast<int64_t*>(l.scratch);
      FindSources(n, Indices{l.inputs[1], wide}, index_of, points, steps, outputs, sources, fault, l.stream);
      TakeSources(outputs, sources, l.In<T>(0), l.Out<T>(0), l.stream);
    });
  });
}

constexpr CudaKernel kUnfoldKernels[] = {
    {"cuda.Col2Im", MakeCol2Im},
    {"cuda.MaxUnpool", MakeMaxUnpool},
    {"cuda.gradloom.Im2Col", MakeIm2Col},
};

}  // namespace

std::span<const CudaKernel> UnfoldKernels() { return kUnfoldKernels; }

}  // namespace gradloom::cuda

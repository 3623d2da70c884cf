// Convolutions by their definition: a thread computes each element of the result, or a part of each of a few. Convolutions normally run in
// cuDNN, except small gradients of weights.
#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/windows.cuh"

namespace gradloom::cuda {
namespace {

// Strides in elements along the dimensions of [N, C, points], or of weights [M, C, taps].
struct Steps {
  int64_t outer, channel, point;

  // The operand must be row-major, or have its channels innermost, padded or not.
  explicit Steps(const OperandType& operand) {
    const Shape& shape = operand.shape;
    int64_t points = 1;
    for (int dim = 2; dim < shape.rank(); ++dim) points *= shape[dim];
    const bool plain = SameMemoryOrder(operand.layout, {}, shape);
    const int64_t channels = plain ? shape[1] : *InnermostChannels(operand);
    outer = channels * points, channel = plain ? points : 1, point = plain ? 1 : channels;
  }
};

// A convolution y[N, M, ...] = x[N, C, ...] * w[M, C / groups, ...], used for all three directions.
struct Convolution {
  Geometry g;
  Steps x, w, y;
  int64_t images, c, m, groups;

  explicit Convolution(const KernelCall& call) : Convolution(call, ConvolutionOperandsOf(call)) {}
  Convolution(const KernelCall& call, const ConvolutionOperands& operands)
      : g(WindowsOfConvolution(call), operands.x->shape, operands.y->shape),
        x(*operands.x),
        w(*operands.w),
        y(*operands.y),
        images(operands.x->shape[0]),
        c(operands.x->shape[1]),
        m(operands.y->shape[1]),
        groups(call.attributes.Int("group", 1)) {}

  constexpr int64_t group_c() const { return c / groups; }
  constexpr int64_t group_m() const { return m / groups; }
};

template <typename T>
void Forward(const Convolution& conv, const T* x, const T* w, const T* bias, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      conv.images * conv.m * conv.g.out_points(), stream, GRADLOOM_ON_DEVICE(int64_t at) {
        const Geometry& g = conv.g;
        const Quotient plane = Divide(at, g.out_points()), image = Divide(plane.quotient, conv.m);
        const Steps &xs = conv.x, &ws = conv.w;
        const int64_t m = image.rest, channels = conv.group_c();
        const T* const from = x + image.quotient * xs.outer + Divide(m, conv.group_m()).quotient * channels * xs.channel;
        const T* const weights = w + m * ws.outer;
        R sum = bias == nullptr ? R(0) : static_cast<R>(bias[m]);
        ForEachTap(SingleThread{}, g, PointOf(g.out, plane.rest), [&](int64_t i, int64_t tap) {
          R part = 0;  // of one tap: a sum of partial sums has smaller rounding errors than one long sum
          const T *const point = from + i * xs.point, *const element = weights + tap * ws.point;
          for (int64_t c = 0; c < channels; ++c) part += static_cast<R>(point[c * xs.channel]) * static_cast<R>(element[c * ws.channel]);
          sum += part;
        });
        y[image.quotient * conv.y.outer + m * conv.y.channel + plane.rest * conv.y.point] = static_cast<T>(sum);
      });
}

template <typename T>
void GradInput(const Convolution& conv, const T* dy, const T* w, const T* bias, T* dx, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      conv.images * conv.c * conv.g.in_points(), stream, GRADLOOM_ON_DEVICE(int64_t at) {
        const Geometry& g = conv.g;
        const Quotient plane = Divide(at, g.in_points()), image = Divide(plane.quotient, conv.c),
                       group = Divide(image.rest, conv.group_c());
        const Steps &ys = conv.y, &ws = conv.w;
        const int64_t channels = conv.group_m();
        const T* const from = dy + image.quotient * ys.outer + group.quotient * channels * ys.channel;
        const T* const weights = w + group.quotient * channels * ws.outer + group.rest * ws.channel;
        R sum = bias == nullptr ? R(0) : static_cast<R>(bias[image.rest]);
        ForEachWindowAt(g, PointOf(g.in, plane.rest), [&](int64_t o, int64_t tap) {
          R part = 0;
          const T *const point = from + o * ys.point, *const element = weights + tap * ws.point;
          for (int64_t m = 0; m < channels; ++m) part += static_cast<R>(point[m * ys.channel]) * static_cast<R>(element[m * ws.outer]);
          sum += part;
        });
        dx[image.quotient * conv.x.outer + image.rest * conv.x.channel + plane.rest * conv.x.point] = static_cast<T>(sum);
      });
}

// The windows of a row, o[2] in [first, end), whose element at an offset from their start lies inside the input.
struct Span {
  int64_t first, end;
};

GRADLOOM_DEVICE Span WindowsInside(int64_t windows, int64_t stride, int64_t offset, int64_t in) {
  const int64_t first = offset >= 0 ? 0 : Divide(stride - 1 - offset, stride).quotient;
  const int64_t end = offset >= in ? 0 : Divide(in - 1 - offset, stride).quotient + 1;
  return {first, end < windows ? end : windows};
}

// Calls store(weight, sum) for one weight of each of kFilters filters, numbered in row-major order, with its sums over a part of the rows
// of windows. All of them read the same elements of x.
template <int kFilters, typename T, typename Store>
GRADLOOM_DEVICE void SumPart(const Convolution& conv, const WeightGradientParts& parts, const T* x, const T* dy, int64_t part,
                             int64_t thread, Store store) {
  using R = Arithmetic<T>;
  const Geometry& g = conv.g;
  const Steps &xs = conv.x, &ys = conv.y;
  const Quotient of_taps = Divide(thread, g.taps()), of_channels = Divide(of_taps.quotient, conv.group_c());
  const int64_t m = of_channels.quotient * kFilters;
  const Point3 tap = PointOf(g.kernel, of_taps.rest);
  int64_t offset[3];
  for (int dim = 0; dim < 3; ++dim) offset[dim] = tap.at[dim] * g.dilation[dim] - g.pad[dim];
  const Span inside = WindowsInside(g.out[2], g.stride[2], offset[2], g.in[2]);
  x += (Divide(m, conv.group_m()).quotient * conv.group_c() + of_channels.rest) * xs.channel;
  dy += m * ys.channel;

  const int64_t begin = Divide(part * parts.rows, parts.parts).quotient, end = Divide((part + 1) * parts.rows, parts.parts).quotient;
  const Quotient planes = Divide(begin, g.out[1]), images = Divide(planes.quotient, g.out[0]);
  int64_t image = images.quotient, o0 = images.rest, o1 = planes.rest;
  R sums[kFilters] = {};
  for (int64_t row = begin; row < end; ++row) {
    const int64_t i0 = o0 * g.stride[0] + offset[0], i1 = o1 * g.stride[1] + offset[1];
    if (i0 >= 0 && i0 < g.in[0] && i1 >= 0 && i1 < g.in[1]) {
      const T* from = x + image * xs.outer + ((i0 * g.in[1] + i1) * g.in[2] + inside.first * g.stride[2] + offset[2]) * xs.point;
      const T* at = dy + image * ys.outer + ((o0 * g.out[1] + o1) * g.out[2] + inside.first) * ys.point;
      R of_row[kFilters] = {};  // a sum of partial sums has smaller rounding errors than one long sum
      for (int64_t o = inside.first; o < inside.end; ++o, from += g.stride[2] * xs.point, at += ys.point) {
        const R element = static_cast<R>(*from);
        for (int f = 0; f < kFilters; ++f) of_row[f] += static_cast<R>(at[f * ys.channel]) * element;
      }
      for (int f = 0; f < kFilters; ++f) sums[f] += of_row[f];
    }
    if (++o1 < g.out[1]) continue;
    o1 = 0;
    if (++o0 < g.out[0]) continue;
    o0 = 0, ++image;
  }
  const int64_t of_filter = conv.group_c() * g.taps();
  for (int f = 0; f < kFilters; ++f) store((m + f) * of_filter + of_channels.rest * g.taps() + of_taps.rest, sums[f]);
}

// Sums over all images and windows. `scratch` has one element in the arithmetic type for each weight and part.
template <int kFilters, typename T>
void GradWeight(const Convolution& conv, const WeightGradientParts& parts, const T* x, const T* dy, void* scratch, T* dw,
                cudaStream_t stream) {
  using R = Arithmetic<T>;
  // The place of a weight in dw, in whatever order that is.
  const auto place = GRADLOOM_ON_DEVICE(int64_t weight)->int64_t {
    const Quotient filter = Divide(weight, conv.g.taps()), m = Divide(filter.quotient, conv.group_c());
    return m.quotient * conv.w.outer + m.rest * conv.w.channel + filter.rest * conv.w.point;
  };
  if (parts.parts == 1) {
    return ForEachElement(
        parts.threads, stream, GRADLOOM_ON_DEVICE(int64_t thread) {
          SumPart<kFilters>(conv, parts, x, dy, 0, thread, [&](int64_t weight, R sum) { dw[place(weight)] = static_cast<T>(sum); });
        });
  }
  R* const partials = static_cast<R*>(scratch);
  const int64_t weights = parts.weights();
  ForEachElement(
      parts.parts * parts.threads, stream, GRADLOOM_ON_DEVICE(int64_t at) {
        const Quotient part = Divide(at, parts.threads);
        SumPart<kFilters>(conv, parts, x, dy, part.quotient, part.rest,
                          [&](int64_t weight, R sum) { partials[part.quotient * weights + weight] = sum; });
      });
  ForEachRowOf(
      weights, parts.parts, weights, stream, GRADLOOM_ON_DEVICE(const auto& group, int64_t weight) {
        const R sum = SumOf<R>(group, parts.parts, [&](int64_t part) { return partials[part * weights + weight]; });
        if (group.thread() == 0) dw[place(weight)] = static_cast<T>(sum);
      });
}

// Before a kernel that writes the elements of a result: it leaves out padding.
void ZeroPadding(const OperandType& result, void* memory, cudaStream_t stream) {
  if (result.layout.elements(result.shape) == result.shape.elements()) return;
  GRADLOOM_CUDA(cudaMemsetAsync(memory, 0, static_cast<size_t>(result.bytes()), stream));
}

std::unique_ptr<Kernel> MakeConv(const KernelCall& call, const KernelSite&) {
  const Convolution conv(call);
  const bool has_bias = Has(call.inputs, 2);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, y = call.outputs[0]](const Launch& l) {
      ZeroPadding(y, l.outputs[0], l.stream);
      Forward(conv, l.In<T>(0), l.In<T>(1), has_bias ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream);
    });
  });
}

// A transposed convolution is the gradient of the corresponding convolution with respect to its input.
std::unique_ptr<Kernel> MakeGradInput(const KernelCall& call, const KernelSite&) {
  const Convolution conv(call);
  const bool has_bias = Has(call.inputs, 2);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, dx = call.outputs[0]](const Launch& l) {
      ZeroPadding(dx, l.outputs[0], l.stream);
      GradInput(conv, l.In<T>(0), l.In<T>(1), has_bias ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeGradWeight(const KernelCall& call, const KernelSite&) {
  const Convolution conv(call);
  const WeightGradientParts parts = WeightGradientPartsOf(call);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, dw = call.outputs[0]](const Launch& l) {
      ZeroPadding(dw, l.outputs[0], l.stream);
      const auto run = parts.filters == 4 ? GradWeight<4, T> : parts.filters == 2 ? GradWeight<2, T> : GradWeight<1, T>;
      run(conv, parts, l.In<T>(0), l.In<T>(1), l.scratch, l.Out<T>(0), l.stream);
    });
  });
}

constexpr CudaKernel kConvolutionKernels[] = {
    {"cuda.Conv", MakeConv},
    {"cuda.ConvTranspose", MakeGradInput},
    {"cuda.gradloom.ConvGradInput", MakeGradInput},
    {"cuda.gradloom.ConvGradWeight", MakeGradWeight},
    {"cuda.small.gradloom.ConvGradWeight", MakeGradWeight},
};

}  // namespace

std::span<const CudaKernel> ConvolutionKernels() { return kConvolutionKernels; }

}  // namespace gradloom::cuda

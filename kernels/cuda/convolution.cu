// Convolutions by their definition: a thread, or a group of threads, computes each element of the result. Convolutions normally run in
// cuDNN.
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

// Sums over all images and windows.
template <typename T>
void GradWeight(const Convolution& conv, const T* x, const T* dy, T* dw, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const int64_t weights = conv.m * conv.group_c() * conv.g.taps(), n = conv.images * conv.g.out_points();
  ForEachRowOf(
      weights, n, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t at) {
        const Geometry& g = conv.g;
        const Quotient filter = Divide(at, g.taps()), m = Divide(filter.quotient, conv.group_c());
        const int64_t c = Divide(m.quotient, conv.group_m()).quotient * conv.group_c() + m.rest;
        const Point3 tap = PointOf(g.kernel, filter.rest);
        const R sum = SumOf<R>(block, n, [&](int64_t k) {
          const Quotient image = Divide(k, g.out_points());
          Point3 i = PointOf(g.out, image.rest);
          for (int dim = 0; dim < 3; ++dim) {
            i.at[dim] = g.Start(dim, i.at[dim]) + tap.at[dim] * g.dilation[dim];
            if (i.at[dim] < 0 || i.at[dim] >= g.in[dim]) return R(0);
          }
          const Steps &xs = conv.x, &ys = conv.y;
          return static_cast<R>(dy[image.quotient * ys.outer + m.quotient * ys.channel + image.rest * ys.point]) *
                 static_cast<R>(x[image.quotient * xs.outer + c * xs.channel + NumberOf(g.in, i) * xs.point]);
        });
        if (block.thread() != 0) return;
        dw[m.quotient * conv.w.outer + m.rest * conv.w.channel + filter.rest * conv.w.point] = static_cast<T>(sum);
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
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, dw = call.outputs[0]](const Launch& l) {
      ZeroPadding(dw, l.outputs[0], l.stream);
      GradWeight(conv, l.In<T>(0), l.In<T>(1), l.Out<T>(0), l.stream);
    });
  });
}

constexpr CudaKernel kConvolutionKernels[] = {
    {"cuda.Conv", MakeConv},
    {"cuda.ConvTranspose", MakeGradInput},
    {"cuda.gradloom.ConvGradInput", MakeGradInput},
    {"cuda.gradloom.ConvGradWeight", MakeGradWeight},
};

}  // namespace

std::span<const CudaKernel> ConvolutionKernels() { return kConvolutionKernels; }

}  // namespace gradloom::cuda

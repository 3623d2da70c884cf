// Convolutions by their definition: a thread, or a group of them, for each element of the result. They mostly run in cuDNN.
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/windows.cuh"

namespace gradloom::cuda {
namespace {

// A convolution y[N, M, ...] = x[N, C, ...] * w[M, C / groups, ...]; all three directions use it.
struct Convolution {
  Geometry g;
  int64_t images, c, m, groups;

  Convolution(const Windows& windows, const Shape& x, const Shape& y, int64_t groups)
      : g(windows, x, y), images(x[0]), c(x[1]), m(y[1]), groups(groups) {}

  constexpr int64_t group_c() const { return c / groups; }
  constexpr int64_t group_m() const { return m / groups; }
};

std::vector<int64_t> KernelExtents(const Shape& weights) { return {weights.begin() + 2, weights.end()}; }

Convolution Describe(const Attributes& attributes, const Shape& x, const Shape& w, const Shape& y) {
  return {WindowsOf(attributes, x, KernelExtents(w)), x, y, attributes.Int("group", 1)};
}

template <typename T>
void Forward(const Convolution& conv, const T* x, const T* w, const T* bias, T* y, cudaStream_t stream) {
  using R = Arithmetic<T>;
  ForEachElement(
      conv.images * conv.m * conv.g.out_points(), stream, GRADLOOM_ON_DEVICE(int64_t at) {
        const Geometry& g = conv.g;
        const Quotient plane = Divide(at, g.out_points()), image = Divide(plane.quotient, conv.m);
        const int64_t m = image.rest, channels = conv.group_c(), in = g.in_points(), taps = g.taps();
        const T* const from = x + (image.quotient * conv.c + Divide(m, conv.group_m()).quotient * channels) * in;
        const T* const weights = w + m * channels * taps;
        R sum = bias == nullptr ? R(0) : static_cast<R>(bias[m]);
        ForEachTap(Alone{}, g, PointOf(g.out, plane.rest), [&](int64_t i, int64_t tap) {
          R part = 0;  // of one tap: a sum of sums rounds less than one long sum
          for (int64_t c = 0; c < channels; ++c) part += static_cast<R>(from[c * in + i]) * static_cast<R>(weights[c * taps + tap]);
          sum += part;
        });
        y[at] = static_cast<T>(sum);
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
        const int64_t channels = conv.group_m(), out = g.out_points(), taps = g.taps(), filter = conv.group_c() * taps;
        const T* const from = dy + (image.quotient * conv.m + group.quotient * channels) * out;
        const T* const weights = w + group.quotient * channels * filter + group.rest * taps;
        R sum = bias == nullptr ? R(0) : static_cast<R>(bias[image.rest]);
        ForEachWindowAt(g, PointOf(g.in, plane.rest), [&](int64_t o, int64_t tap) {
          R part = 0;
          for (int64_t m = 0; m < channels; ++m) part += static_cast<R>(from[m * out + o]) * static_cast<R>(weights[m * filter + tap]);
          sum += part;
        });
        dx[at] = static_cast<T>(sum);
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
          return static_cast<R>(dy[(image.quotient * conv.m + m.quotient) * g.out_points() + image.rest]) *
                 static_cast<R>(x[(image.quotient * conv.c + c) * g.in_points() + NumberOf(g.in, i)]);
        });
        if (block.thread() == 0) dw[at] = static_cast<T>(sum);
      });
}

std::unique_ptr<Kernel> MakeConv(const KernelCall& call, const KernelSite&) {
  const Convolution conv = Describe(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  const bool has_bias = Has(call.inputs, 2);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) { Forward(conv, l.In<T>(0), l.In<T>(1), has_bias ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> GradsInput(const KernelCall& call, const Convolution& conv) {
  const bool has_bias = Has(call.inputs, 2);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) { GradInput(conv, l.In<T>(0), l.In<T>(1), has_bias ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeConvGradInput(const KernelCall& call, const KernelSite&) {
  return GradsInput(call, Describe(call.attributes, call.outputs[0].shape, call.inputs[1].shape, call.inputs[0].shape));
}

// A transposed convolution is the gradient, with respect to its input, of the convolution the other way.
std::unique_ptr<Kernel> MakeConvTranspose(const KernelCall& call, const KernelSite&) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  const Windows windows = TransposedWindowsOf(call.attributes, x, y, KernelExtents(call.inputs[1].shape));
  return GradsInput(call, {windows, y, x, call.attributes.Int("group", 1)});
}

std::unique_ptr<Kernel> MakeConvGradWeight(const KernelCall& call, const KernelSite&) {
  const Convolution conv = Describe(call.attributes, call.inputs[0].shape, call.outputs[0].shape, call.inputs[1].shape);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) { GradWeight(conv, l.In<T>(0), l.In<T>(1), l.Out<T>(0), l.stream); });
  });
}

constexpr CudaKernel kKernels[] = {
    {"cuda.Conv", MakeConv},
    {"cuda.ConvTranspose", MakeConvTranspose},
    {"cuda.gradloom.ConvGradInput", MakeConvGradInput},
    {"cuda.gradloom.ConvGradWeight", MakeConvGradWeight},
};

}  // namespace

std::span<const CudaKernel> ConvolutionKernels() { return kKernels; }

}  // namespace gradloom::cuda

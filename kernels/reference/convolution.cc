// Conv, ConvTranspose, gradloom.ConvGradInput, gradloom.ConvGradWeight.
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/spatial.h"
#include "kernels/reference/wide.h"
#include "runtime/base/dispatch.h"

namespace gradloom {
namespace {

// A convolution y[N, M, ...] = x[N, C, ...] * w[M, C / groups, ...], used for all three directions.
struct Convolution {
  Volume x, y;
  Window3 window;
  int64_t groups = 1;

  int64_t channels_in() const { return x.channels / groups; }   // per group
  int64_t channels_out() const { return y.channels / groups; }  // per group

  // Calls f(plane of y, plane of x, filter plane of w) for every connected pair of planes.
  template <typename F>
  void ForEachPlane(F f) const {
    for (int64_t n = 0; n < x.batch; ++n) {
      for (int64_t m = 0; m < y.channels; ++m) {
        const int64_t first = m / channels_out() * channels_in();
        for (int64_t c = 0; c < channels_in(); ++c) f(n * y.channels + m, n * x.channels + first + c, m * channels_in() + c);
      }
    }
  }
};

std::vector<int64_t> KernelExtents(const Shape& weights) { return {weights.begin() + 2, weights.end()}; }

Convolution Describe(const Attributes& attributes, const Shape& x, const Shape& weights, const Shape& y) {
  Convolution c{Volume::Of(x), Volume::Of(y), Window3::Of(WindowsOf(attributes, x, KernelExtents(weights))), attributes.Int("group", 1)};
  return c;
}

template <typename T>
void Forward(const Convolution& c, const T* x, const T* w, const T* bias, T* y) {
  const int64_t in = c.x.points(), out = c.y.points(), taps = c.window.points();
  for (int64_t plane = 0; plane < c.y.batch * c.y.channels; ++plane) {
    std::fill_n(y + plane * out, out, bias == nullptr ? T(0) : bias[plane % c.y.channels]);
  }
  c.ForEachPlane([&](int64_t y_plane, int64_t x_plane, int64_t w_plane) {
    ForEachRow(c.window, c.x, c.y, [&](int64_t tap, int64_t out_row, int64_t in_row, int64_t count, int64_t step) {
      const T weight = w[w_plane * taps + tap];
      T* to = y + y_plane * out + out_row;
      const T* from = x + x_plane * in + in_row;
      for (int64_t j = 0; j < count; ++j) to[j] += weight * from[j * step];
    });
  });
}

template <typename T>
void GradInput(const Convolution& c, const T* dy, const T* w, const T* bias, T* dx) {
  const int64_t in = c.x.points(), out = c.y.points(), taps = c.window.points();
  for (int64_t plane = 0; plane < c.x.batch * c.x.channels; ++plane) {
    std::fill_n(dx + plane * in, in, bias == nullptr ? T(0) : bias[plane % c.x.channels]);
  }
  c.ForEachPlane([&](int64_t y_plane, int64_t x_plane, int64_t w_plane) {
    ForEachRow(c.window, c.x, c.y, [&](int64_t tap, int64_t out_row, int64_t in_row, int64_t count, int64_t step) {
      const T weight = w[w_plane * taps + tap];
      const T* from = dy + y_plane * out + out_row;
      T* to = dx + x_plane * in + in_row;
      for (int64_t j = 0; j < count; ++j) to[j * step] += weight * from[j];
    });
  });
}

template <typename T>
void GradWeight(const Convolution& c, const T* x, const T* dy, T* dw) {
  const int64_t in = c.x.points(), out = c.y.points(), taps = c.window.points();
  // Sums over all images and points, in double: rounding errors would show in optimizers that divide by these sums.
  std::vector<double> sums(static_cast<size_t>(c.y.channels * c.channels_in() * taps), 0.0);
  c.ForEachPlane([&](int64_t y_plane, int64_t x_plane, int64_t w_plane) {
    ForEachRow(c.window, c.x, c.y, [&](int64_t tap, int64_t out_row, int64_t in_row, int64_t count, int64_t step) {
      const T* a = dy + y_plane * out + out_row;
      const T* b = x + x_plane * in + in_row;
      T sum = 0;
      for (int64_t j = 0; j < count; ++j) sum += a[j] * b[j * step];
      sums[static_cast<size_t>(w_plane * taps + tap)] += static_cast<double>(sum);
    });
  });
  for (size_t i = 0; i < sums.size(); ++i) dw[i] = static_cast<T>(sums[i]);
}

void RunConv(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Convolution c = Describe(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* bias = call.inputs.size() > 2 && call.inputs[2].present() ? static_cast<const T*>(inputs[2]) : nullptr;
    Forward(c, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), bias, static_cast<T*>(outputs[0]));
  });
}

// A transposed convolution is the gradient of the corresponding convolution with respect to its input.
void RunConvTranspose(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  const Windows windows = TransposedWindowsOf(call.attributes, x, y, KernelExtents(call.inputs[1].shape));
  const Convolution c{Volume::Of(y), Volume::Of(x), Window3::Of(windows), call.attributes.Int("group", 1)};
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* bias = call.inputs.size() > 2 && call.inputs[2].present() ? static_cast<const T*>(inputs[2]) : nullptr;
    GradInput(c, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), bias, static_cast<T*>(outputs[0]));
  });
}

void RunConvGradInput(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Convolution c = Describe(call.attributes, call.outputs[0].shape, call.inputs[1].shape, call.inputs[0].shape);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    GradInput(c, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), static_cast<const T*>(nullptr),
              static_cast<T*>(outputs[0]));
  });
}

void RunConvGradWeight(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Convolution c = Describe(call.attributes, call.inputs[0].shape, call.outputs[0].shape, call.inputs[1].shape);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    GradWeight(c, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), static_cast<T*>(outputs[0]));
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Conv", "", Wide<RunConv>},
    {"ConvTranspose", "", Wide<RunConvTranspose>},
    {"ConvGradInput", "gradloom", Wide<RunConvGradInput>},
    {"ConvGradWeight", "gradloom", Wide<RunConvGradWeight>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceConvolution() { return kKernels; }

}  // namespace gradloom

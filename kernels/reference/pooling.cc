// MaxPool, AveragePool, LpPool, their global forms, MaxRoiPool, and their gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"
#include "kernels/reference/spatial.h"
#include "kernels/reference/wide.h"
#include "runtime/base/dispatch.h"

namespace gradloom {
namespace {

struct Pooling {
  Volume x, y;
  Window3 window;

  int64_t planes() const { return x.batch * x.channels; }
};

Pooling Describe(const KernelCall& call, const Shape& x, const Shape& y) {
  const std::vector<int64_t> kernel = call.attributes.Ints("kernel_shape");
  return {Volume::Of(x), Volume::Of(y), Window3::Of(WindowsOf(call.attributes, x, kernel))};
}

// The first maximum of each window of a plane (NaN counts as the maximum); -1: the window is empty.
template <typename T>
void ArgMax(const Pooling& p, const T* x, std::vector<int64_t>& at) {
  at.assign(static_cast<size_t>(p.y.points()), -1);
  ForEachPoint(p.window, p.x, p.y, [&](int64_t o, int64_t i) {
    int64_t& best = at[static_cast<size_t>(o)];
    if (best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best])) best = i;
  });
}

template <typename T>
T Lowest() {
  if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

// The index of a point in ONNX's Indices output: within the whole tensor, row-major, or with the spatial dimensions in column-major order.
int64_t OnnxIndex(const Pooling& p, int64_t plane, int64_t point, bool column_major) {
  if (!column_major) return plane * p.x.points() + point;
  const int64_t w = point % p.x.extent[2], h = point / p.x.extent[2] % p.x.extent[1], d = point / (p.x.extent[2] * p.x.extent[1]);
  return plane * p.x.points() + (w * p.x.extent[1] + h) * p.x.extent[0] + d;
}

template <typename T>
void MaxPool(const KernelCall& call, const Pooling& p, const T* x, T* y, int64_t* indices) {
  const bool column_major = call.attributes.Int("storage_order", 0) == 1;
  std::vector<int64_t> at;
  for (int64_t plane = 0; plane < p.planes(); ++plane) {
    const T* from = x + plane * p.x.points();
    ArgMax(p, from, at);
    for (size_t o = 0; o < at.size(); ++o) {
      const int64_t out = plane * p.y.points() + static_cast<int64_t>(o);
      if (y != nullptr) y[out] = at[o] < 0 ? Lowest<T>() : from[at[o]];
      if (indices != nullptr) indices[out] = at[o] < 0 ? -1 : OnnxIndex(p, plane, at[o], column_major);
    }
  }
}

void RunMaxPool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.inputs[0].shape, call.outputs[0].shape);
  int64_t* indices = call.outputs.size() > 1 && call.outputs[1].present() ? static_cast<int64_t*>(outputs[1]) : nullptr;
  WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    // Wide has converted these types to float.
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, Bfloat16>)
      MaxPool(call, p, static_cast<const T*>(inputs[0]), static_cast<T*>(outputs[0]), indices);
  });
}

void RunMaxPoolGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.inputs[0].shape, call.inputs[1].shape);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<int64_t> at;
    for (int64_t plane = 0; plane < p.planes(); ++plane) {
      const T* dy = static_cast<const T*>(inputs[1]) + plane * p.y.points();
      T* dx = static_cast<T*>(outputs[0]) + plane * p.x.points();
      ArgMax(p, static_cast<const T*>(inputs[0]) + plane * p.x.points(), at);
      std::fill_n(dx, p.x.points(), T(0));
      for (size_t o = 0; o < at.size(); ++o) {
        if (at[o] >= 0) dx[at[o]] += dy[o];
      }
    }
  });
}

std::vector<int64_t> Divisors(const KernelCall& call, const Pooling& p) {
  return AverageDivisors(p.window, p.x, p.y, call.attributes.Int("count_include_pad", 0) != 0);
}

void RunAveragePool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.inputs[0].shape, call.outputs[0].shape);
  const std::vector<int64_t> divisors = Divisors(call, p);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t plane = 0; plane < p.planes(); ++plane) {
      const T* x = static_cast<const T*>(inputs[0]) + plane * p.x.points();
      T* y = static_cast<T*>(outputs[0]) + plane * p.y.points();
      std::fill_n(y, p.y.points(), T(0));
      ForEachPoint(p.window, p.x, p.y, [&](int64_t o, int64_t i) { y[o] += x[i]; });
      for (size_t o = 0; o < divisors.size(); ++o) y[o] /= static_cast<T>(divisors[o]);
    }
  });
}

void RunAveragePoolGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.outputs[0].shape, call.inputs[0].shape);
  const std::vector<int64_t> divisors = Divisors(call, p);
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t plane = 0; plane < p.planes(); ++plane) {
      const T* dy = static_cast<const T*>(inputs[0]) + plane * p.y.points();
      T* dx = static_cast<T*>(outputs[0]) + plane * p.x.points();
      std::fill_n(dx, p.x.points(), T(0));
      ForEachPoint(p.window, p.x, p.y, [&](int64_t o, int64_t i) { dx[i] += dy[o] / static_cast<T>(divisors[static_cast<size_t>(o)]); });
    }
  });
}

void RunLpPool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.inputs[0].shape, call.outputs[0].shape);
  const double power = static_cast<double>(call.attributes.Int("p", 2));
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t plane = 0; plane < p.planes(); ++plane) {
      const T* x = static_cast<const T*>(inputs[0]) + plane * p.x.points();
      T* y = static_cast<T*>(outputs[0]) + plane * p.y.points();
      std::fill_n(y, p.y.points(), T(0));
      ForEachPoint(p.window, p.x, p.y, [&](int64_t o, int64_t i) { y[o] += static_cast<T>(std::pow(std::abs(x[i]), power)); });
      for (int64_t o = 0; o < p.y.points(); ++o) y[o] = static_cast<T>(std::pow(y[o], 1 / power));
    }
  });
}

// dx = dy * sign(x) |x|^(p-1) y^(1-p), and 0 for an element that is 0, whatever p.
void RunLpPoolGrad(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const Pooling p = Describe(call, call.inputs[0].shape, call.inputs[1].shape);
  const double power = static_cast<double>(call.attributes.Int("p", 2));
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t plane = 0; plane < p.planes(); ++plane) {
      const T* x = static_cast<const T*>(inputs[0]) + plane * p.x.points();
      const T* y = static_cast<const T*>(inputs[1]) + plane * p.y.points();
      const T* dy = static_cast<const T*>(inputs[2]) + plane * p.y.points();
      T* dx = static_cast<T*>(outputs[0]) + plane * p.x.points();
      std::fill_n(dx, p.x.points(), T(0));
      ForEachPoint(p.window, p.x, p.y, [&](int64_t o, int64_t i) {
        if (y[o] == T(0) || x[i] == T(0)) return;
        const T slope = static_cast<T>(std::pow(std::abs(x[i]), power - 1) * std::pow(y[o], 1 - power));
        dx[i] += x[i] < 0 ? -slope * dy[o] : slope * dy[o];
      });
    }
  });
}

// One value per plane.
template <typename F>
void Global(const KernelCall& call, const void* const* inputs, void* const* outputs, F reduce) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t planes = shape[0] * shape[1], points = planes == 0 ? 0 : shape.elements() / planes;
  WithFloat(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t plane = 0; plane < planes; ++plane) {
      static_cast<T*>(outputs[0])[plane] = reduce(static_cast<const T*>(inputs[0]) + plane * points, points);
    }
  });
}

void RunGlobalAveragePool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  Global(call, inputs, outputs, []<typename T>(const T* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
    return static_cast<T>(sum / static_cast<double>(n));
  });
}

void RunGlobalMaxPool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  Global(call, inputs, outputs, []<typename T>(const T* x, int64_t n) {
    T best = Lowest<T>();
    for (int64_t i = 0; i < n; ++i) best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
  });
}

void RunGlobalLpPool(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const double power = static_cast<double>(call.attributes.Int("p", 2));
  Global(call, inputs, outputs, [power]<typename T>(const T* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::pow(std::abs(static_cast<double>(x[i])), power);
    return static_cast<T>(std::pow(sum, 1 / power));
  });
}

// Calls f(plane, bin, index of the largest pixel in x, or -1 if the bin is empty) for each bin of each region of (x, rois [count, 5]). A
// region is an image, and a box whose corners are rounded to pixels and inclusive. `y` is the shape of the output.
template <typename F>
void ForEachLargest(const KernelCall& call, const Numbers& x, const Numbers& rois, const Shape& y, const F& f) {
  const Shape& from = call.inputs[0].shape;
  const int64_t height = from[2], width = from[3];
  const auto scale = static_cast<float>(call.attributes.Float("spatial_scale", 1));
  if (call.inputs[1].shape != Shape{y[0], 5})
    throw Error(ErrorCode::kShape, call.op + ": regions " + call.inputs[1].shape.ToString() + " for an output " + y.ToString());
  // The pixels of bin `bin` of `bins` between two corners, clipped to the image. In float32, which determines where bins end.
  const auto range = [](int64_t first, int64_t last, int64_t bin, int64_t bins, int64_t extent) {
    const float step = static_cast<float>(std::max<int64_t>(last - first + 1, 1)) / static_cast<float>(bins);
    const auto at = [&](float place) { return std::clamp<int64_t>(static_cast<int64_t>(place) + first, 0, extent); };
    return std::array<int64_t, 2>{at(std::floor(static_cast<float>(bin) * step)), at(std::ceil(static_cast<float>(bin + 1) * step))};
  };
  for (int64_t r = 0; r < y[0]; ++r) {
    const double* roi = &rois[static_cast<size_t>(r * 5)];
    if (!(roi[0] >= 0 && roi[0] < static_cast<double>(from[0])))
      throw Error(ErrorCode::kData, call.op + ": image " + std::to_string(roi[0]) + " of a batch of " + std::to_string(from[0]));
    // Clamps distant coordinates, which stay outside. So does NaN.
    const auto corner = [&](size_t i) {
      const float at = static_cast<float>(roi[i]) * scale;
      return static_cast<int64_t>(std::round(at > 1e9f ? 1e9f : at > -1e9f ? at : -1e9f));
    };
    for (int64_t bin = 0; bin < y[2] * y[3]; ++bin) {
      const auto rows = range(corner(2), corner(4), bin / y[3], y[2], height),
                 columns = range(corner(1), corner(3), bin % y[3], y[3], width);
      for (int64_t c = 0; c < from[1]; ++c) {
        const int64_t plane = (static_cast<int64_t>(roi[0]) * from[1] + c) * height * width;
        int64_t best = -1;
        for (int64_t row = rows[0]; row < rows[1]; ++row) {
          for (int64_t column = columns[0]; column < columns[1]; ++column) {
            const int64_t place = plane + row * width + column;
            if (best < 0 || x[static_cast<size_t>(place)] > x[static_cast<size_t>(best)]) best = place;
          }
        }
        f(r * from[1] + c, bin, best);
      }
    }
  }
}

void MaxRoiPool(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(shape.elements()), 0.0);
  ForEachLargest(call, x, NumbersOf(call, in, 1), shape, [&](int64_t plane, int64_t bin, int64_t best) {
    if (best >= 0) y[static_cast<size_t>(plane * shape[2] * shape[3] + bin)] = x[static_cast<size_t>(best)];
  });
  StoreNumbers(call, 0, y, out);
}

// gradloom.MaxRoiPoolGrad(x, rois, dy) -> dx.
void MaxRoiPoolGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[2].shape;
  const Numbers x = NumbersOf(call, in, 0), dy = NumbersOf(call, in, 2);
  Numbers dx(x.size(), 0.0);
  ForEachLargest(call, x, NumbersOf(call, in, 1), shape, [&](int64_t plane, int64_t bin, int64_t best) {
    if (best >= 0) dx[static_cast<size_t>(best)] += dy[static_cast<size_t>(plane * shape[2] * shape[3] + bin)];
  });
  StoreNumbers(call, 0, dx, out);
}

constexpr ReferenceKernel kKernels[] = {
    {"MaxPool", "", Wide<RunMaxPool>},
    {"MaxPoolGrad", "gradloom", Wide<RunMaxPoolGrad>},
    {"AveragePool", "", Wide<RunAveragePool>},
    {"AveragePoolGrad", "gradloom", Wide<RunAveragePoolGrad>},
    {"LpPool", "", Wide<RunLpPool>},
    {"LpPoolGrad", "gradloom", Wide<RunLpPoolGrad>},
    {"GlobalAveragePool", "", Wide<RunGlobalAveragePool>},
    {"GlobalMaxPool", "", Wide<RunGlobalMaxPool>},
    {"GlobalLpPool", "", Wide<RunGlobalLpPool>},
    {"MaxRoiPool", "", MaxRoiPool},
    {"MaxRoiPoolGrad", "gradloom", MaxRoiPoolGrad},
};

}  // namespace

std::span<const ReferenceKernel> ReferencePooling() { return kKernels; }

}  // namespace gradloom

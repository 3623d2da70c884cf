// The windows of convolutions and poolings over up to three spatial dimensions, on the device.
#pragma once

#include "kernels/cuda/offset_calculator.cuh"
#include "runtime/base/windows.h"

namespace gradloom::cuda {

// A point of a volume, or a kernel element.
struct Point3 {
  int64_t at[3];
};

GRADLOOM_DEVICE Point3 PointOf(const int64_t (&extents)[3], int64_t i) {
  const Quotient row = Divide(i, extents[2]), plane = Divide(row.quotient, extents[1]);
  return {{plane.quotient, plane.rest, row.rest}};
}
GRADLOOM_DEVICE int64_t NumberOf(const int64_t (&extents)[3], const Point3& p) {
  return (p.at[0] * extents[1] + p.at[1]) * extents[2] + p.at[2];
}

// The range [first, first + count) along each dimension.
struct Box {
  int64_t first[3], count[3];
  GRADLOOM_DEVICE int64_t points() const { return count[0] * count[1] * count[2]; }
};

// Windows of `kernel` elements over `in` points; there are `out` windows. Missing leading dimensions have extent 1.
struct Geometry {
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {}, pad_end[3] = {};
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};

  // `input` and `output` are shapes [N, C, ...].
  Geometry(const Windows& w, const Shape& input, const Shape& output) {
    for (int from = 0; from < w.rank(); ++from) {
      const int to = from + 3 - w.rank();
      const auto i = static_cast<size_t>(from);
      kernel[to] = w.kernel[i], stride[to] = w.strides[i], dilation[to] = w.dilations[i];
      pad[to] = w.pads_begin[i], pad_end[to] = w.pads_end[i];
      in[to] = input[from + 2], out[to] = output[from + 2];
    }
  }

  constexpr int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  constexpr int64_t in_points() const { return in[0] * in[1] * in[2]; }
  constexpr int64_t out_points() const { return out[0] * out[1] * out[2]; }

  // The first input coordinate of window o; negative in the padding.
  GRADLOOM_DEVICE int64_t Start(int dim, int64_t o) const { return o * stride[dim] - pad[dim]; }

  // The number of kernel elements of window o that lie before `limit`.
  GRADLOOM_DEVICE int64_t TapsBefore(int dim, int64_t o, int64_t limit) const {
    const int64_t room = limit - Start(dim, o);
    if (room <= 0) return 0;
    const int64_t taps = Divide(room - 1, dilation[dim]).quotient + 1;
    return taps < kernel[dim] ? taps : kernel[dim];
  }

  // The kernel elements of a window that lie inside the input.
  GRADLOOM_DEVICE Box TapsInside(const Point3& window) const {
    Box box;
    for (int dim = 0; dim < 3; ++dim) {
      box.first[dim] = TapsBefore(dim, window.at[dim], 0);
      box.count[dim] = TapsBefore(dim, window.at[dim], in[dim]) - box.first[dim];
    }
    return box;
  }

  // The range of windows that may contain an input point. With dilation, some of them skip it.
  GRADLOOM_DEVICE Box WindowsAround(const Point3& point) const {
    Box box;
    for (int dim = 0; dim < 3; ++dim) {
      const int64_t reach = point.at[dim] + pad[dim], early = reach - (kernel[dim] - 1) * dilation[dim];
      const int64_t past = Divide(reach, stride[dim]).quotient + 1, end = past < out[dim] ? past : out[dim];
      box.first[dim] = early <= 0 ? 0 : Divide(early + stride[dim] - 1, stride[dim]).quotient;
      box.count[dim] = end > box.first[dim] ? end - box.first[dim] : 0;
    }
    return box;
  }

  // The kernel element of window o at input coordinate i, which must not be before the window; -1 if there is none.
  GRADLOOM_DEVICE int64_t TapAt(int dim, int64_t o, int64_t i) const {
    const Quotient tap = Divide(i - Start(dim, o), dilation[dim]);
    return tap.rest == 0 ? tap.quotient : -1;
  }
};

// Calls f(input point, kernel element) for each kernel element of the window inside the input. The threads of `block` share them.
template <typename Threads, typename F>
GRADLOOM_DEVICE void ForEachTap(const Threads& block, const Geometry& g, const Point3& window, F f) {
  const Box box = g.TapsInside(window);
  Point3 tap = {{0, 0, block.thread()}};
  for (int64_t left = box.points() - block.thread(); left > 0; left -= block.threads(), tap.at[2] += block.threads()) {
    while (tap.at[2] >= box.count[2]) {
      tap.at[2] -= box.count[2];
      if (++tap.at[1] == box.count[1]) tap.at[1] = 0, ++tap.at[0];
    }
    Point3 k, i;
    for (int dim = 0; dim < 3; ++dim) {
      k.at[dim] = box.first[dim] + tap.at[dim];
      i.at[dim] = g.Start(dim, window.at[dim]) + k.at[dim] * g.dilation[dim];
    }
    f(NumberOf(g.in, i), NumberOf(g.kernel, k));
  }
}

// Calls f(window, kernel element) for all windows that contain the input point, in ascending order.
template <typename F>
GRADLOOM_DEVICE void ForEachWindowAt(const Geometry& g, const Point3& point, F f) {
  const Box box = g.WindowsAround(point);
  Point3 o, k;
  for (o.at[0] = box.first[0]; o.at[0] < box.first[0] + box.count[0]; ++o.at[0]) {
    if ((k.at[0] = g.TapAt(0, o.at[0], point.at[0])) < 0) continue;
    for (o.at[1] = box.first[1]; o.at[1] < box.first[1] + box.count[1]; ++o.at[1]) {
      if ((k.at[1] = g.TapAt(1, o.at[1], point.at[1])) < 0) continue;
      for (o.at[2] = box.first[2]; o.at[2] < box.first[2] + box.count[2]; ++o.at[2]) {
        if ((k.at[2] = g.TapAt(2, o.at[2], point.at[2])) >= 0) f(NumberOf(g.out, o), NumberOf(g.kernel, k));
      }
    }
  }
}

}  // namespace gradloom::cuda

// Loops over the windows of convolutions and poolings with up to three spatial dimensions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/windows.h"

namespace gradloom {

// The extents [N, C, spatial...]. Missing leading spatial dimensions are 1.
struct Volume {
  int64_t batch = 0, channels = 0;
  std::array<int64_t, 3> extent{1, 1, 1};

  int64_t points() const { return extent[0] * extent[1] * extent[2]; }

  static Volume Of(const Shape& shape) {
    if (shape.rank() < 3 || shape.rank() > 5) {
      throw Error(ErrorCode::kUnsupported, "a tensor " + shape.ToString() + ": one to three spatial dimensions are supported");
    }
    Volume v{shape[0], shape[1]};
    for (int i = 2; i < shape.rank(); ++i) v.extent[static_cast<size_t>(i + 5 - shape.rank() - 2)] = shape[i];
    return v;
  }
};

// Windows in three dimensions. Missing leading dimensions cover a single point.
struct Window3 {
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0}, pad_end{0, 0, 0};

  static Window3 Of(const Windows& w) {
    Window3 out;
    for (int i = 0; i < w.rank(); ++i) {
      const auto from = static_cast<size_t>(i), to = static_cast<size_t>(i + 3 - w.rank());
      out.kernel[to] = w.kernel[from];
      out.stride[to] = w.strides[from];
      out.dilation[to] = w.dilations[from];
      out.pad[to] = w.pads_begin[from];
      out.pad_end[to] = w.pads_end[from];
    }
    return out;
  }

  int64_t points() const { return kernel[0] * kernel[1] * kernel[2]; }

  // The input coordinate under kernel element k of window o.
  int64_t At(size_t dim, int64_t o, int64_t k) const { return o * stride[dim] - pad[dim] + k * dilation[dim]; }

  // The windows [first, last) of `outputs` whose kernel element k lies within an input of `inputs` points.
  std::array<int64_t, 2> Inside(size_t dim, int64_t k, int64_t outputs, int64_t inputs) const {
    const int64_t shift = k * dilation[dim] - pad[dim];
    const int64_t first = shift >= 0 ? 0 : (-shift + stride[dim] - 1) / stride[dim];
    const int64_t last = shift >= inputs ? 0 : (inputs - 1 - shift) / stride[dim] + 1;
    return {std::min(first, outputs), std::max(std::min(last, outputs), std::min(first, outputs))};
  }

  // The number of kernel elements of window o that lie before the input coordinate `end`.
  int64_t Before(size_t dim, int64_t o, int64_t end) const {
    const int64_t room = end - At(dim, o, 0);
    return room <= 0 ? 0 : std::min((room - 1) / dilation[dim] + 1, kernel[dim]);
  }

  // The kernel elements [first, last) of window o that lie within an input of `inputs` points. A window may be much larger than the input.
  std::array<int64_t, 2> Taps(size_t dim, int64_t o, int64_t inputs) const { return {Before(dim, o, 0), Before(dim, o, inputs)}; }
};

// Calls f(window, input point) for each input point under each window of a plane, window by window in scan order.
template <typename F>
void ForEachPoint(const Window3& w, const Volume& in, const Volume& out, F f) {
  int64_t window = 0;
  for (int64_t d = 0; d < out.extent[0]; ++d) {
    for (int64_t h = 0; h < out.extent[1]; ++h) {
      for (int64_t v = 0; v < out.extent[2]; ++v, ++window) {
        const auto depth = w.Taps(0, d, in.extent[0]), height = w.Taps(1, h, in.extent[1]), width = w.Taps(2, v, in.extent[2]);
        for (int64_t kd = depth[0]; kd < depth[1]; ++kd) {
          for (int64_t kh = height[0]; kh < height[1]; ++kh) {
            const int64_t row = (w.At(0, d, kd) * in.extent[1] + w.At(1, h, kh)) * in.extent[2];
            for (int64_t kw = width[0]; kw < width[1]; ++kw) f(window, row + w.At(2, v, kw));
          }
        }
      }
    }
  }
}

// The divisor of the average for each window of a plane, at least 1: the number of its points within the input or, with `include_pad`,
// within the padded input (a window may exceed the padding in ceil mode).
inline std::vector<int64_t> AverageDivisors(const Window3& w, const Volume& in, const Volume& out, bool include_pad) {
  std::vector<int64_t> divisors(static_cast<size_t>(out.points()), 0);
  if (include_pad) {
    const auto within = [&](size_t dim, int64_t o) { return w.Before(dim, o, in.extent[dim] + w.pad_end[dim]); };
    size_t o = 0;
    for (int64_t d = 0; d < out.extent[0]; ++d) {
      for (int64_t h = 0; h < out.extent[1]; ++h) {
        for (int64_t v = 0; v < out.extent[2]; ++v) divisors[o++] = within(0, d) * within(1, h) * within(2, v);
      }
    }
  } else {
    ForEachPoint(w, in, out, [&](int64_t window, int64_t) { ++divisors[static_cast<size_t>(window)]; });
  }
  for (int64_t& divisor : divisors) divisor = std::max<int64_t>(divisor, 1);
  return divisors;
}

// Calls f(kernel element, output row start, input row start, count, input step) for each run of windows along the innermost dimension. The
// run has output points row + j and input points row + j * step, for j < count.
template <typename F>
void ForEachRow(const Window3& w, const Volume& in, const Volume& out, F f) {
  int64_t element = 0;
  for (int64_t kd = 0; kd < w.kernel[0]; ++kd) {
    for (int64_t kh = 0; kh < w.kernel[1]; ++kh) {
      for (int64_t kw = 0; kw < w.kernel[2]; ++kw, ++element) {
        const auto depth = w.Inside(0, kd, out.extent[0], in.extent[0]);
        const auto height = w.Inside(1, kh, out.extent[1], in.extent[1]);
        const auto width = w.Inside(2, kw, out.extent[2], in.extent[2]);
        if (width[0] >= width[1]) continue;
        for (int64_t d = depth[0]; d < depth[1]; ++d) {
          for (int64_t h = height[0]; h < height[1]; ++h) {
            const int64_t out_row = (d * out.extent[1] + h) * out.extent[2] + width[0];
            const int64_t in_row = (w.At(0, d, kd) * in.extent[1] + w.At(1, h, kh)) * in.extent[2] + w.At(2, width[0], kw);
            f(element, out_row, in_row, width[1] - width[0], w.stride[2]);
          }
        }
      }
    }
  }
}

}  // namespace gradloom

// Max pooling of channels-last tensors and its gradient, for windows of few elements: a thread takes some neighboring channels of a point,
// which it loads and stores as one word. All numbers have 32 bits, and nothing is divided by an instruction.
#pragma once

#include <cmath>

#include "kernels/cuda/channel_rows.cuh"
#include "kernels/cuda/rows/divisor32.h"
#include "kernels/cuda/windows.cuh"

namespace gradloom::cuda {

// The windows of one spatial dimension.
struct WindowAxis {
  int kernel, stride, dilation, pad, in, out;
  Divisor32 by_stride, by_dilation, by_in, by_out;

  WindowAxis(const Geometry& g, int dim)
      : kernel(static_cast<int>(g.kernel[dim])),
        stride(static_cast<int>(g.stride[dim])),
        dilation(static_cast<int>(g.dilation[dim])),
        pad(static_cast<int>(g.pad[dim])),
        in(static_cast<int>(g.in[dim])),
        out(static_cast<int>(g.out[dim])),
        by_stride(stride),
        by_dilation(dilation),
        by_in(in),
        by_out(out) {}

  // The input coordinate of kernel element k of window o; not in [0, in): in the padding.
  GRADLOOM_DEVICE int InputAt(int o, int k) const { return o * stride - pad + k * dilation; }
  GRADLOOM_DEVICE bool HasInput(int i) const { return i >= 0 && i < in; }

  // The range of windows that may contain input coordinate i. With dilation, some of them skip it.
  GRADLOOM_DEVICE int FirstWindow(int i) const {
    const int early = i + pad - (kernel - 1) * dilation;
    return early <= 0 ? 0 : by_stride.Quotient(early + stride - 1);
  }
  GRADLOOM_DEVICE int PastWindow(int i) const {
    const int past = by_stride.Quotient(i + pad) + 1;
    return past < out ? past : out;
  }
  // The kernel element of window o, in this range, at input coordinate i; -1 if there is none.
  GRADLOOM_DEVICE int TapAt(int o, int i) const {
    const int distance = i + pad - o * stride, k = by_dilation.Quotient(distance);
    return k * dilation == distance ? k : -1;
  }
};

struct ChannelWindows {
  int words;  // per point
  Divisor32 by_words;
  WindowAxis axes[3];

  ChannelWindows(const Geometry& g, int64_t words_of_point)
      : words(static_cast<int>(words_of_point)), by_words(words_of_point), axes{{g, 0}, {g, 1}, {g, 2}} {}

  // Whether windows of this many words of inputs and of outputs suit: all numbers then have 31 bits.
  static bool Serve(const Geometry& g, int64_t input_words, int64_t output_words) {
    constexpr int64_t kFewTaps = 64, kMost = int64_t{1} << 29;
    bool fits = input_words > 0 && input_words < 4 * kMost && output_words > 0 && output_words < 4 * kMost && g.taps() <= kFewTaps;
    for (int dim = 0; dim < 3; ++dim) {
      fits = fits && g.in[dim] < kMost && g.pad[dim] < kMost && g.kernel[dim] * g.dilation[dim] < kMost && g.stride[dim] < kMost &&
             g.out[dim] * g.stride[dim] < kMost;
    }
    return fits;
  }

  // A word of a point of an image.
  struct Place {
    int word, at[3], image;
  };
  // The place with number i, if `kExtent` divides by the extents: of inputs, WindowAxis::by_in, or of outputs, by_out.
  template <Divisor32 WindowAxis::*kExtent>
  GRADLOOM_DEVICE Place PlaceOf(int i) const {
    Place p;
    p.word = by_words.Split(i);
    for (int dim = 2; dim >= 0; --dim) p.at[dim] = (axes[dim].*kExtent).Split(i);
    p.image = i;
    return p;
  }
};

// The largest element of each window, and its number among the kernel elements.
template <int kWidth, typename T>
struct Maxima {
  AlignedVector<T, kWidth> values;
  AlignedVector<uint8_t, kWidth> taps;  // kNoTap: the window contains only padding
};
inline constexpr uint8_t kNoTap = 255;

// NaN counts as the largest, and the first of equal elements as the larger one.
template <int kWidth, typename T>
GRADLOOM_DEVICE Maxima<kWidth, T> MaximaOf(const ChannelWindows& w, const AlignedVector<T, kWidth>* x, int window) {
  using R = Arithmetic<T>;
  constexpr int kAtOnce = 3;  // loads
  const WindowAxis &a = w.axes[0], &b = w.axes[1], &c = w.axes[2];
  const auto place = w.PlaceOf<&WindowAxis::by_out>(window);
  R best[kWidth];
  int larger[kWidth];  // the kernel element that is larger than -infinity
  int first = kNoTap;  // inside the input
  for (int v = 0; v < kWidth; ++v) best[v] = static_cast<R>(-INFINITY), larger[v] = -1;
  for (int k0 = 0; k0 < a.kernel; ++k0) {
    const int i0 = a.InputAt(place.at[0], k0);
    if (!a.HasInput(i0)) continue;
    for (int k1 = 0; k1 < b.kernel; ++k1) {
      const int i1 = b.InputAt(place.at[1], k1);
      if (!b.HasInput(i1)) continue;
      const int row = ((place.image * a.in + i0) * b.in + i1) * c.in, row_tap = (k0 * b.kernel + k1) * c.kernel;
      for (int k2 = 0; k2 < c.kernel; k2 += kAtOnce) {
        AlignedVector<T, kWidth> loaded[kAtOnce];
        bool inside[kAtOnce];
        for (int k = 0; k < kAtOnce; ++k) {
          const int i2 = c.InputAt(place.at[2], k2 + k);
          inside[k] = k2 + k < c.kernel && c.HasInput(i2);
          if (inside[k]) loaded[k] = x[(row + i2) * w.words + place.word];
        }
        for (int k = 0; k < kAtOnce; ++k) {
          if (!inside[k]) continue;
          const int tap = row_tap + k2 + k;
          if (first == kNoTap) first = tap;
          for (int v = 0; v < kWidth; ++v) {
            const R value = static_cast<R>(loaded[k].at[v]);
            const bool wins = !(value <= best[v]) && best[v] == best[v];
            best[v] = wins ? value : best[v];
            larger[v] = wins ? tap : larger[v];
          }
        }
      }
    }
  }
  Maxima<kWidth, T> result;
  for (int v = 0; v < kWidth; ++v) {
    result.values.at[v] = static_cast<T>(best[v]);
    result.taps.at[v] = static_cast<uint8_t>(larger[v] < 0 ? first : larger[v]);
  }
  return result;
}

// Calls store(word, maxima) for each word of the outputs.
template <int kWidth, typename T, typename Store>
void ForEachMaxima(const ChannelWindows& w, int64_t outputs, const T* x, cudaStream_t stream, const Store& store) {
  const auto* const words = reinterpret_cast<const AlignedVector<T, kWidth>*>(x);
  ForEachElement(
      outputs / kWidth, stream, GRADLOOM_ON_DEVICE(int64_t i) { store(i, MaximaOf(w, words, static_cast<int>(i))); });
}

// dx, the sum of dy over the windows whose maximum is the element, in the order of the windows.
template <int kWidth, typename T>
void SumAtMaxima(const ChannelWindows& w, int64_t inputs, const uint8_t* taps, const T* dy, T* dx, cudaStream_t stream) {
  using R = Arithmetic<T>;
  using Values = AlignedVector<T, kWidth>;
  using Taps = AlignedVector<uint8_t, kWidth>;
  ForEachElement(
      inputs / kWidth, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        constexpr int kAtOnce = 2;  // loads of each operand
        const WindowAxis &a = w.axes[0], &b = w.axes[1], &c = w.axes[2];
        const auto place = w.PlaceOf<&WindowAxis::by_in>(static_cast<int>(i));
        R sums[kWidth] = {};
        const int past0 = a.PastWindow(place.at[0]), past1 = b.PastWindow(place.at[1]), past2 = c.PastWindow(place.at[2]);
        const int first1 = b.FirstWindow(place.at[1]), first2 = c.FirstWindow(place.at[2]);
        for (int o0 = a.FirstWindow(place.at[0]); o0 < past0; ++o0) {
          const int k0 = a.TapAt(o0, place.at[0]);
          if (k0 < 0) continue;
          for (int o1 = first1; o1 < past1; ++o1) {
            const int k1 = b.TapAt(o1, place.at[1]);
            if (k1 < 0) continue;
            const int row = ((place.image * a.out + o0) * b.out + o1) * c.out, tap = (k0 * b.kernel + k1) * c.kernel;
            for (int o2 = first2; o2 < past2; o2 += kAtOnce) {
              Values slopes[kAtOnce];
              Taps found[kAtOnce];
              int own[kAtOnce];
              for (int k = 0; k < kAtOnce; ++k) {
                own[k] = o2 + k < past2 ? c.TapAt(o2 + k, place.at[2]) : -1;
                if (own[k] < 0) continue;
                const int at = (row + o2 + k) * w.words + place.word;
                slopes[k] = reinterpret_cast<const Values*>(dy)[at];
                found[k] = reinterpret_cast<const Taps*>(taps)[at];
              }
              for (int k = 0; k < kAtOnce; ++k) {
                if (own[k] < 0) continue;
                for (int v = 0; v < kWidth; ++v) {
                  if (found[k].at[v] == tap + own[k]) sums[v] += static_cast<R>(slopes[k].at[v]);
                }
              }
            }
          }
        }
        Values result;
        for (int v = 0; v < kWidth; ++v) result.at[v] = static_cast<T>(sums[v]);
        reinterpret_cast<Values*>(dx)[i] = result;
      });
}

}  // namespace gradloom::cuda

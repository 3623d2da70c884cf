// Convolutions with a filter for each channel, channels innermost: every product is of two contiguous rows of channels.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

// kVectors vectors of channels of kPoints points, whose sums stay in registers.
template <Index kPoints, Index kVectors>
GRADLOOM_INLINE void Tile(const DepthwiseArgs& args, Index point, Index channel) {
  Vector sums[kPoints][kVectors];
#pragma GCC unroll 8
  for (Index v = 0; v < kVectors; ++v) {
    const Vector start = args.bias != nullptr ? Load(args.bias + channel + v * kLanes) : Vector{};
#pragma GCC unroll 8
    for (Index p = 0; p < kPoints; ++p) sums[p][v] = start;
  }
  const float* const x = args.x + point * args.x_step + channel;
  for (Index t = 0; t < args.count; ++t) {
    const float *const from = x + args.taps[t].x, *const w = args.w + args.taps[t].w + channel;
    Vector factors[kVectors];
#pragma GCC unroll 8
    for (Index v = 0; v < kVectors; ++v) factors[v] = Load(w + v * kLanes);
#pragma GCC unroll 8
    for (Index p = 0; p < kPoints; ++p) {
#pragma GCC unroll 8
      for (Index v = 0; v < kVectors; ++v) sums[p][v] = Fma(Load(from + p * args.x_step + v * kLanes), factors[v], sums[p][v]);
    }
  }
  float* const y = args.y + point * args.y_step + channel;
#pragma GCC unroll 8
  for (Index p = 0; p < kPoints; ++p) {
#pragma GCC unroll 8
    for (Index v = 0; v < kVectors; ++v) Store(y + p * args.y_step + v * kLanes, sums[p][v]);
  }
}

// Channels that do not fill a vector are computed together with those before them, which gives the same numbers a second time.
template <Index kPoints, Index kVectors>
void Points(const DepthwiseArgs& args, Index point) {
  Index channel = 0;
  for (; channel + kVectors * kLanes <= args.channels; channel += kVectors * kLanes) Tile<kPoints, kVectors>(args, point, channel);
  for (; channel + kLanes <= args.channels; channel += kLanes) Tile<kPoints, 1>(args, point, channel);
  if (channel < args.channels) Tile<kPoints, 1>(args, point, args.channels - kLanes);
}

void FewChannels(const DepthwiseArgs& args) {
  for (Index p = 0; p < args.points; ++p) {
    float sums[kLanes];
    for (Index c = 0; c < args.channels; ++c) sums[c] = args.bias != nullptr ? args.bias[c] : 0.0f;
    for (Index t = 0; t < args.count; ++t) {
      const float *const from = args.x + p * args.x_step + args.taps[t].x, *const w = args.w + args.taps[t].w;
      for (Index c = 0; c < args.channels; ++c) sums[c] = scalar::Fma(from[c], w[c], sums[c]);
    }
    for (Index c = 0; c < args.channels; ++c) args.y[p * args.y_step + c] = sums[c];
  }
}

// Vectors of fewer lanes than the native ones. The attribute's argument may not depend on a template parameter.
template <Index kWidth>
struct Lanes;
#define GRADLOOM_LANES(width)                                                               \
  template <>                                                                               \
  struct Lanes<width> {                                                                     \
    typedef float Aligned __attribute__((vector_size(width * 4)));                          \
    typedef float Unaligned __attribute__((vector_size(width * 4), aligned(4), may_alias)); \
  };
GRADLOOM_LANES(1)
GRADLOOM_LANES(2)
GRADLOOM_LANES(4)
GRADLOOM_LANES(8)
GRADLOOM_LANES(16)
#undef GRADLOOM_LANES

template <Index kWidth>
struct Narrow {
  using Type = typename Lanes<kWidth>::Aligned;

  GRADLOOM_INLINE Type Load(const float* p) { return *reinterpret_cast<const typename Lanes<kWidth>::Unaligned*>(p); }
  GRADLOOM_INLINE void Store(float* p, Type v) { *reinterpret_cast<typename Lanes<kWidth>::Unaligned*>(p) = v; }
  GRADLOOM_INLINE Type Fma(Type a, Type b, Type c) {
    if constexpr (kWidth == kLanes) {
      return GRADLOOM_ISA::Fma(a, b, c);
    } else {
      Type r;
      for (Index i = 0; i < kWidth; ++i) r[i] = scalar::Fma(a[i], b[i], c[i]);
      return r;
    }
  }
};

// Points of any of several taps, [begin, end), and those of all of them, [first, last).
struct TapRange {
  Index begin, first, last, end;
};

template <Index kTaps>
GRADLOOM_INLINE TapRange RangeOf(const DepthwiseGradTap* taps) {
  TapRange range = {taps[0].begin, taps[0].begin, taps[0].end, taps[0].end};
  for (Index t = 1; t < kTaps; ++t) {
    range.first = taps[t].begin > range.first ? taps[t].begin : range.first;
    range.last = taps[t].end < range.last ? taps[t].end : range.last;
    range.begin = taps[t].begin < range.begin ? taps[t].begin : range.begin;
    range.end = taps[t].end > range.end ? taps[t].end : range.end;
  }
  if (range.first > range.last) range.first = range.last = range.end;
  return range;
}

// The sums of kTaps taps over kVectors vectors of kWidth channels stay in registers.
template <Index kTaps, Index kVectors, Index kWidth>
void GradientTile(const DepthwiseGradArgs& args, Index tap, Index channel) {
  using V = Narrow<kWidth>;
  typename V::Type sums[kTaps][kVectors] = {};
  const DepthwiseGradTap* const taps = args.taps + tap;
  const float *const x = args.x + channel, *const y = args.y + channel;
  const TapRange range = RangeOf<kTaps>(taps);
  const auto at_edge = [&](Index p) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (Index t = 0; t < kTaps; ++t) {
      if (p < taps[t].begin || p >= taps[t].end) continue;
#pragma GCC unroll 8
      for (Index v = 0; v < kVectors; ++v) {
        sums[t][v] = V::Fma(V::Load(x + taps[t].x + p * args.x_step + v * kWidth), V::Load(y + p * args.y_step + v * kWidth), sums[t][v]);
      }
    }
  };
  for (Index p = range.begin; p < range.first; ++p) at_edge(p);
  Index offsets[kTaps];
  for (Index t = 0; t < kTaps; ++t) offsets[t] = taps[t].x;
  for (Index p = range.first; p < range.last; ++p) {
    const float *const from = x + p * args.x_step, *const by = y + p * args.y_step;
#pragma GCC unroll 8
    for (Index v = 0; v < kVectors; ++v) {
      const typename V::Type factor = V::Load(by + v * kWidth);
#pragma GCC unroll 8
      for (Index t = 0; t < kTaps; ++t) sums[t][v] = V::Fma(V::Load(from + offsets[t] + v * kWidth), factor, sums[t][v]);
    }
  }
  for (Index p = range.last; p < range.end; ++p) at_edge(p);
#pragma GCC unroll 8
  for (Index t = 0; t < kTaps; ++t) {
#pragma GCC unroll 8
    for (Index v = 0; v < kVectors; ++v) {
      float* const to = args.to + (tap + t) * args.channels + channel + v * kWidth;
      V::Store(to, V::Load(to) + sums[t][v]);
    }
  }
}

// Channels that do not fill a vector are computed in halves of one, down to single channels.
template <Index kTaps, Index kWidth>
void LastChannels(const DepthwiseGradArgs& args, Index tap, Index channel) {
  for (; channel + kWidth <= args.channels; channel += kWidth) GradientTile<kTaps, 1, kWidth>(args, tap, channel);
  if constexpr (kWidth > 1) {
    if (channel < args.channels) LastChannels<kTaps, kWidth / 2>(args, tap, channel);
  }
}

template <Index kTaps>
void GradientTaps(const DepthwiseGradArgs& args, Index tap) {
  constexpr Index kVectors = kLanes == 16 ? 4 : 2;
  Index channel = 0;
  for (; channel + kVectors * kLanes <= args.channels; channel += kVectors * kLanes) {
    GradientTile<kTaps, kVectors, kLanes>(args, tap, channel);
  }
  if (kVectors > 2 && channel + 2 * kLanes <= args.channels) {
    GradientTile<kTaps, 2, kLanes>(args, tap, channel);
    channel += 2 * kLanes;
  }
  LastChannels<kTaps, kLanes>(args, tap, channel);
}

constexpr void (*kGradientTaps[])(const DepthwiseGradArgs&, Index) = {
    nullptr, GradientTaps<1>, GradientTaps<2>, GradientTaps<3>, GradientTaps<4>, GradientTaps<5>,
};
constexpr Index kMaxGradientTaps = 5;  // with the vectors of GradientTaps, as many sums as there are registers for

// In each group of kChannels lanes, channel `k` of the group at p.
template <Index kChannels>
GRADLOOM_INLINE Vector Repeated(const float* p, Index k) {
  if constexpr (kChannels == kLanes) {
    return BroadcastFrom(p + k);
  } else {
    IntVector lanes;
    for (Index l = 0; l < kLanes; ++l) lanes[l] = static_cast<int>(l / kChannels * kChannels + k);
    return __builtin_shuffle(Load(p), lanes);
  }
}

template <Index kTaps, Index kChannels>
void GroupTile(const GroupedGradArgs& args, Index tap) {
  Vector sums[kTaps][kChannels] = {};
  const DepthwiseGradTap* const taps = args.taps + tap;
  const TapRange range = RangeOf<kTaps>(taps);
  for (const GroupedGradRow *row = args.rows, *end = row + args.row_count; row < end; ++row) {
    const float *const x = args.x + row->x, *const y = args.y + row->y;
    const auto add = [&](Index t, const float* from, Vector factor) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (Index k = 0; k < kChannels; ++k) sums[t][k] = Fma(Repeated<kChannels>(from, k), factor, sums[t][k]);
    };
    const auto at_edge = [&](Index p) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (Index t = 0; t < kTaps; ++t) {
        if (p >= taps[t].begin && p < taps[t].end) add(t, x + taps[t].x + p * args.x_step, Load(y + p * args.y_step));
      }
    };
    for (Index p = range.begin; p < range.first; ++p) at_edge(p);
    for (Index p = range.first; p < range.last; ++p) {
      const Vector factor = Load(y + p * args.y_step);
#pragma GCC unroll 8
      for (Index t = 0; t < kTaps; ++t) add(t, x + taps[t].x + p * args.x_step, factor);
    }
    for (Index p = range.last; p < range.end; ++p) at_edge(p);
  }
#pragma GCC unroll 8
  for (Index t = 0; t < kTaps; ++t) {
#pragma GCC unroll 8
    for (Index k = 0; k < kChannels; ++k) {
      float* const to = args.to + ((tap + t) * kChannels + k) * kLanes;
      Store(to, Load(to) + sums[t][k]);
    }
  }
}

// As many taps at once as there are registers for their sums.
template <Index kChannels>
void GroupTaps(const GroupedGradArgs& args) {
  if constexpr (kChannels <= kLanes) {
    constexpr Index kAtOnce = kLanes == 16 ? 3 : kChannels == 4 ? 3 : 1;
    Index tap = 0;
    for (; tap + kAtOnce <= args.count; tap += kAtOnce) GroupTile<kAtOnce, kChannels>(args, tap);
    for (; tap < args.count; ++tap) GroupTile<1, kChannels>(args, tap);
  }
}

}  // namespace

void GroupedGradient(const GroupedGradArgs& args) { (args.channels == 4 ? GroupTaps<4> : GroupTaps<8>)(args); }

void DepthwiseGradient(const DepthwiseGradArgs& args) {
  const Index parts = (args.count + kMaxGradientTaps - 1) / kMaxGradientTaps;
  for (Index i = 0; i < parts; ++i) {
    const Index tap = args.count * i / parts;
    kGradientTaps[args.count * (i + 1) / parts - tap](args, tap);
  }
}

void ConvolveDepthwise(const DepthwiseArgs& args) {
  if (args.channels < kLanes) return FewChannels(args);
  // As many sums as hide the latency of a multiply-add, and no more than there are registers for.
  Index point = 0;
  for (; point + 4 <= args.points; point += 4) Points<4, 2>(args, point);
  switch (args.points - point) {
    case 3: return Points<3, 2>(args, point);
    case 2: return Points<2, 4>(args, point);
    case 1: return Points<1, 4>(args, point);
  }
}

}  // namespace gradloom::GRADLOOM_ISA

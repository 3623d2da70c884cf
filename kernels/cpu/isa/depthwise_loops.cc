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

}  // namespace

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

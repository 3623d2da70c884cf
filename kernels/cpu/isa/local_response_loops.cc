// Local response normalization of a tile: rows of points, one row per channel.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

// into[p] = the sum of f(row, p) over the rows in [c - before, c + after] that exist.
template <typename F>
void SumWindow(Index channels, Index c, Index before, Index after, float* into, F f) {
  const Index first = c > before ? c - before : 0, last = c + after < channels ? c + after + 1 : channels;
  for (Index p = 0; p < kResponsePoints; ++p) into[p] = 0;
  for (Index j = first; j < last; ++j) {
#pragma omp simd
    for (Index p = 0; p < kResponsePoints; ++p) into[p] += f(j * kResponsePoints + p);
  }
}

}  // namespace

void LocalResponse(const ResponseArgs& args, const float* x, float* bases, float* powers) {
  for (Index c = 0; c < args.channels; ++c) {
    float* const base = bases + c * kResponsePoints;
    float* const power = powers + c * kResponsePoints;
    SumWindow(args.channels, c, args.before, args.after, base, [&](Index i) { return x[i] * x[i]; });
#pragma omp simd
    for (Index p = 0; p < kResponsePoints; ++p) {
      base[p] = args.bias + args.factor * base[p];
      power[p] = scalar::Exp(-args.beta * scalar::Log(base[p]));
    }
  }
}

void LocalResponseGrad(const ResponseArgs& args, const float* dy, const float* x, const float* bases, const float* powers, float* dx) {
  const float along = 2 * args.factor * args.beta;
  for (Index c = 0; c < args.channels; ++c) {
    const Index row = c * kResponsePoints;
    float* const to = dx + row;
    // The channels whose windows contain this one.
    SumWindow(args.channels, c, args.after, args.before, to, [&](Index i) { return dy[i] * x[i] * powers[i] / bases[i]; });
#pragma omp simd
    for (Index p = 0; p < kResponsePoints; ++p) to[p] = dy[row + p] * powers[row + p] - along * x[row + p] * to[p];
  }
}

}  // namespace gradloom::GRADLOOM_ISA

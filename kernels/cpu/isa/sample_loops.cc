#include "kernels/cpu/isa/tables.h"

namespace gradloom::GRADLOOM_ISA {

void SampleTaps(const SampledTaps& taps, const float* x, float* y) {
  for (Index p = 0; p < taps.points; ++p) y[p] = 0.0f;
  for (Index k = 0; k < taps.count; ++k) {
    const int* at = taps.at + k * taps.stride;
    const float* weight = taps.weight + k * taps.stride;
#pragma omp simd
    for (Index p = 0; p < taps.points; ++p) {
      const float value = x[at[p] < 0 ? 0 : at[p]];
      y[p] += weight[p] * (at[p] < 0 ? 0.0f : value);
    }
  }
}

void SampleSlopes(const SampledTaps& taps, const float* x, const float* g, float* into_y, float* into_x) {
  for (Index k = 0; k < taps.count; ++k) {
    const int* at = taps.at + k * taps.stride;
    const float *slope_y = taps.slope_y + k * taps.stride, *slope_x = taps.slope_x + k * taps.stride;
#pragma omp simd
    for (Index p = 0; p < taps.points; ++p) {
      const float value = x[at[p] < 0 ? 0 : at[p]], through = g[p] * (at[p] < 0 ? 0.0f : value);
      into_y[p] += slope_y[p] * through;
      into_x[p] += slope_x[p] * through;
    }
  }
}

}  // namespace gradloom::GRADLOOM_ISA

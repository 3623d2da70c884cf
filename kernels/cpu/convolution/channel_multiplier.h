// Convolutions with several filters for each channel are those with one filter for each channel of an operand in which every channel is
// repeated.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradloom {

// to[i * times ...] = from[i], `times` times, for i < n.
inline void RepeatElements(const float* from, int64_t n, int64_t times, float* to) {
  if (times == 2) {
    for (int64_t i = 0; i < n; ++i) to[2 * i] = to[2 * i + 1] = from[i];
  } else if (times == 4) {
    for (int64_t i = 0; i < n; ++i) to[4 * i] = to[4 * i + 1] = to[4 * i + 2] = to[4 * i + 3] = from[i];
  } else {
    for (int64_t i = 0; i < n; ++i, to += times) std::fill_n(to, times, from[i]);
  }
}

// to[i] = the sum of from[i * times ...] over `times` elements, in order, for i < n.
inline void SumRepeated(const float* from, int64_t n, int64_t times, float* to) {
  if (times == 2) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[2 * i] + from[2 * i + 1];
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += times) {
    float sum = from[0];
    for (int64_t t = 1; t < times; ++t) sum += from[t];
    to[i] = sum;
  }
}

}  // namespace gradloom

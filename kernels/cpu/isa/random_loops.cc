// Random numbers from counters, a vector of counters at a time.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

// Like UniformFloat of runtime/base/philox.h.
GRADLOOM_INLINE float Uniform(unsigned word) { return static_cast<float>(static_cast<int>(word >> 8)) * 0x1p-24f; }

// The sine and the cosine of 2 pi * turns, for turns in [0, 1): Taylor series within an eighth of a turn around each quarter, whose
// truncation error is below half an ulp.
struct Circle {
  float sine, cosine;
};
GRADLOOM_INLINE Circle OnCircle(float turns) {
  const int quarter = static_cast<int>(turns * 4 + 0.5f);
  const float x = (turns - static_cast<float>(quarter) * 0.25f) * 6.283185307f, square = x * x;
  const float sine = x * (1 + square * (-1.0f / 6 + square * (1.0f / 120 + square * (-1.0f / 5040 + square * (1.0f / 362880)))));
  const float cosine =
      1 + square * (-0.5f + square * (1.0f / 24 + square * (-1.0f / 720 + square * (1.0f / 40320 + square * (-1.0f / 3628800)))));
  const bool crossed = (quarter & 1) != 0;
  const float first = crossed ? cosine : sine, second = crossed ? sine : cosine;
  return {(quarter & 2) != 0 ? -first : first, ((quarter + 1) & 2) != 0 ? -second : second};
}

// Interleaves the first or the second halves of a and b in groups of kGroup elements.
template <Index kGroup, bool kSecondHalf>
GRADLOOM_INLINE IntVector InTurns(IntVector a, IntVector b) {
  IntVector from;
  for (Index j = 0; j < kLanes; ++j) {
    const Index group = j / (2 * kGroup), at = j % (2 * kGroup);
    const Index element = (kSecondHalf ? kLanes / 2 : 0) + group * kGroup + at % kGroup;
    from[j] = static_cast<int>(at < kGroup ? element : kLanes + element);
  }
  return __builtin_shuffle(a, b, from);
}

// to[4 j + i] = element j of vector i.
GRADLOOM_INLINE void StoreInterleaved(const unsigned* v0, const unsigned* v1, const unsigned* v2, const unsigned* v3, unsigned* to) {
  IntVector v[4], out[4];
  const unsigned* const from[] = {v0, v1, v2, v3};
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&v[i], from[i], sizeof v[i]);
  const IntVector low01 = InTurns<1, false>(v[0], v[1]), high01 = InTurns<1, true>(v[0], v[1]);
  const IntVector low23 = InTurns<1, false>(v[2], v[3]), high23 = InTurns<1, true>(v[2], v[3]);
  out[0] = InTurns<2, false>(low01, low23);
  out[1] = InTurns<2, true>(low01, low23);
  out[2] = InTurns<2, false>(high01, high23);
  out[3] = InTurns<2, true>(high01, high23);
  __builtin_memcpy(to, out, sizeof out);
}

}  // namespace

void RandomWords(unsigned long first, unsigned key0, unsigned key1, Index blocks, unsigned* words) {
  for (Index block = 0; block < blocks; block += kLanes, words += 4 * kLanes) {
    unsigned c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (Index j = 0; j < kLanes; ++j) {
      const unsigned long counter = first + static_cast<unsigned long>(block + j);
      c0[j] = static_cast<unsigned>(counter);
      c1[j] = static_cast<unsigned>(counter >> 32);
      c2[j] = c3[j] = 0;
    }
    unsigned k0 = key0, k1 = key1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
#pragma omp simd
      for (Index j = 0; j < kLanes; ++j) {
        const unsigned long p0 = 0xD2511F53ul * c0[j], p1 = 0xCD9E8D57ul * c2[j];
        c0[j] = static_cast<unsigned>(p1 >> 32) ^ c1[j] ^ k0;
        c1[j] = static_cast<unsigned>(p1);
        c2[j] = static_cast<unsigned>(p0 >> 32) ^ c3[j] ^ k1;
        c3[j] = static_cast<unsigned>(p0);
      }
    }
    StoreInterleaved(c0, c1, c2, c3, words);
  }
}

void Dropout(const float* x, const unsigned* words, Index n, float ratio, float scale, float* y) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = Uniform(words[i]) >= ratio ? x[i] * scale : 0.0f;
}

void UniformNumbers(const unsigned* words, Index n, float low, float range, float* y) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = low + range * Uniform(words[i]);
}

// Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
void NormalNumbers(const unsigned* words, Index pairs, float mean, float scale, float* y) {
  for (Index i = 0; i < pairs; ++i) {
    const float radius = scale * __builtin_sqrtf(-2 * scalar::Log(1 - Uniform(words[2 * i])));
    const Circle at = OnCircle(Uniform(words[2 * i + 1]));
    y[2 * i] = mean + radius * at.cosine;
    y[2 * i + 1] = mean + radius * at.sine;
  }
}

}  // namespace gradloom::GRADLOOM_ISA

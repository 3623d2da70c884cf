// Vectors of the native width, for loops that the compiler does not vectorize on its own. Include this only in files that are compiled per
// instruction set.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/isa/loops.h"
#include "kernels/scalar/math.h"

// The namespace of the instruction set: avx512, avx2 or baseline.
#ifndef GRADLOOM_ISA
#error "compile with -DGRADLOOM_ISA=..."
#endif

namespace gradloom::GRADLOOM_ISA {
namespace {

#if defined(__AVX512F__)
inline constexpr Index kLanes = 16;
#elif defined(__AVX2__)
inline constexpr Index kLanes = 8;
#else
inline constexpr Index kLanes = 4;
#endif

inline constexpr Index kMatrixPanel = 2 * kLanes;  // columns per panel of a packed matrix

// Rows of a tile of a product with a panel: as many as fit into the registers beside two vectors of the panel and one of a row.
inline constexpr Index kPanelRows = kLanes == 16 ? 14 : 6;

#define GRADLOOM_INLINE static inline __attribute__((always_inline, unused))

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float UnalignedVector __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int IntVector __attribute__((vector_size(kLanes * 4)));

GRADLOOM_INLINE Vector Load(const float* p) { return *reinterpret_cast<const UnalignedVector*>(p); }
GRADLOOM_INLINE void Store(float* p, Vector v) { *reinterpret_cast<UnalignedVector*>(p) = v; }
// Compiles to one broadcast instruction, which can load from memory. Writing it as a sum with a zero vector would cost an addition.
GRADLOOM_INLINE Vector Broadcast(float x) {
  Vector v;
  for (Index i = 0; i < kLanes; ++i) v[i] = x;
  return v;
}

// Broadcasts a number in memory. For a loop over the lanes, GCC 12 loads a whole vector and shuffles its first lane, which takes a port
// from the multiply-adds.
GRADLOOM_INLINE Vector BroadcastFrom(const float* p) {
#if defined(__AVX512F__)
  return _mm512_maskz_broadcastss_ps(static_cast<__mmask16>(-1), _mm_load_ss(p));
#elif defined(__AVX2__)
  return _mm256_broadcast_ss(p);
#else
  return Broadcast(*p);
#endif
}

// One instruction. Where there is none, lane by lane; GCC 12 does not always make one of such a loop.
GRADLOOM_INLINE Vector Fma(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  Vector r;
  for (Index i = 0; i < kLanes; ++i) r[i] = scalar::Fma(a[i], b[i], c[i]);
  return r;
#endif
}

}  // namespace
}  // namespace gradloom::GRADLOOM_ISA

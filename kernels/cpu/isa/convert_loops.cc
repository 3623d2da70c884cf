#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {

void LoadBool(const unsigned char* from, float* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<int>(from[i]));
}

void StoreBool(const float* from, unsigned char* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(from[i] != 0.0f ? 1 : 0);
}

void LoadFloat16(const unsigned short* from, float* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = scalar::HalfValue(from[i]);
}

void StoreFloat16(const float* from, unsigned short* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<unsigned short>(scalar::HalfBits(from[i]));
}

void LoadBfloat16(const unsigned short* from, float* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = scalar::Bfloat16Value(from[i]);
}

void StoreBfloat16(const float* from, unsigned short* to, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = static_cast<unsigned short>(scalar::Bfloat16Bits(from[i]));
}

}  // namespace gradloom::GRADLOOM_ISA

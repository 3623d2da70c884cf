// Small integers q that represent (q - zero) * scale.
#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

template <typename T>
void Quantize(const float* x, Index n, float scale, int zero, void* out) {
  constexpr int kLow = static_cast<T>(-1) < 0 ? -(1 << (8 * sizeof(T) - 1)) : 0;
  constexpr int kHigh = kLow + (1 << (8 * sizeof(T))) - 1;
  const float low = static_cast<float>(kLow - zero), high = static_cast<float>(kHigh - zero);
  T* const y = static_cast<T*>(out);
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    const float v = x[i] / scale, above = v > low ? v : low, within = above < high ? above : high;
    const float rounded = (within + 12582912.0f) - 12582912.0f;  // rounds numbers below 2^22 to even
    y[i] = static_cast<T>(static_cast<int>(rounded) + zero);
  }
}

template <typename T>
void Dequantize(const void* in, Index n, float scale, int zero, float* y) {
  const T* const x = static_cast<const T*>(in);
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<int>(x[i]) - zero) * scale;
}

}  // namespace

// In the order of enum SmallInteger.
const QuantizeLoop kQuantize[] = {Quantize<unsigned char>, Quantize<signed char>, Quantize<unsigned short>, Quantize<short>};
const DequantizeLoop kDequantize[] = {Dequantize<unsigned char>, Dequantize<signed char>, Dequantize<unsigned short>, Dequantize<short>};

}  // namespace gradloom::GRADLOOM_ISA

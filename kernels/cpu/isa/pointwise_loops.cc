#include "kernels/cpu/isa/tables.h"
#include "kernels/cpu/isa/vector.h"

namespace gradloom::scalar {
namespace {

// One loop per function. The operands may be the result's own memory: each element is read before it is
// written, which is what `omp simd` needs to know.
#define GRADLOOM_POINTWISE(name, operands, expression)             \
  void Loop##name(const PointwiseArgs& args) {                     \
    [[maybe_unused]] const float* pa = args.a;                     \
    [[maybe_unused]] const float* pb = operands > 1 ? args.b : pa; \
    [[maybe_unused]] const float* pc = operands > 2 ? args.c : pa; \
    float* const d = args.d;                                       \
    const Index n = args.n;                                        \
    _Pragma("omp simd") for (Index i = 0; i < n; ++i) {            \
      [[maybe_unused]] const float a = pa[i];                      \
      [[maybe_unused]] const float b = pb[i];                      \
      [[maybe_unused]] const float c = pc[i];                      \
      d[i] = (expression);                                         \
    }                                                              \
  }
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE

}  // namespace
}  // namespace gradloom::scalar

namespace gradloom::GRADLOOM_ISA {

const PointwiseLoop kPointwiseLoops[] = {
#define GRADLOOM_POINTWISE(name, operands, expression) scalar::Loop##name,
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
};

void Fill(float* to, float value, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) to[i] = value;
}

void ExpScaled(const float* x, float* y, Index n, float factor) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) y[i] = scalar::Exp(x[i]) * factor;
}

}  // namespace gradloom::GRADLOOM_ISA

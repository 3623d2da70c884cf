#include "kernels/cuda/scalar_text.h"

namespace gradloom::cuda {
namespace {

// The text of math.h and rounded.h, converted to a literal by the build.
constexpr const char* kMath[] = {
#include "kernels/cuda/math_text.inc"
};

// Conversions in hardware. They round to nearest even, like runtime/base/half.h.
constexpr char kTypes[] = R"(
// Consecutive elements, loaded and stored as words of up to 16 bytes.
template <typename T, int kSize>
struct alignas(kSize * sizeof(T) < 16 ? kSize * sizeof(T) : 16) Vector {
  T at[kSize];
};
#ifdef __CUDACC__
struct Half {
  unsigned short bits;
  Half() = default;
  __device__ explicit Half(float f) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f)); }
  __device__ explicit operator float() const {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
  }
};
struct Bfloat16 {
  unsigned short bits;
  Bfloat16() = default;
  __device__ explicit Bfloat16(float f) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f)); }
  __device__ explicit operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
#endif
using namespace gradloom::scalar;
)";

}  // namespace

const std::string& ScalarText() {
  static const std::string text = [] {
    std::string made;
    for (const char* line : kMath) made += line;
    return made + kTypes;
  }();
  return text;
}

}  // namespace gradloom::cuda

// Floating-point operands whose type is known only at run time, such as scalars and probabilities.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace gradloom::cuda {

struct FloatOperand {
  const void* data = nullptr;
  DType dtype = DType::kUndefined;

  GRADLOOM_DEVICE double operator[](int64_t i) const {
    switch (dtype) {
      case DType::kFloat64: return static_cast<const double*>(data)[i];
      case DType::kFloat16: return static_cast<double>(static_cast<float>(static_cast<const Half*>(data)[i]));
      case DType::kBfloat16: return static_cast<double>(static_cast<float>(static_cast<const Bfloat16*>(data)[i]));
      default: return static_cast<double>(static_cast<const float*>(data)[i]);
    }
  }
};

}  // namespace gradloom::cuda

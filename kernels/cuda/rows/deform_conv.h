// The scratch memory of the gradients of a deformable convolution.
#pragma once

#include <cstdint>

#include "kernels/catalog/deform_conv.h"

namespace gradloom::cuda_rows {

// The intermediate values of DeformConvGrad: the gradients of all bilinear samples, and the integer sums for the gradient of x.
struct DeformScratch {
  bool samples, sums;  // whether each is needed
  int64_t sample_bytes = 0, sum_bytes = 0, unit_bytes = 0;

  explicit DeformScratch(const KernelCall& call);
  int64_t bytes() const { return sample_bytes + sum_bytes + unit_bytes; }
};

}  // namespace gradloom::cuda_rows

// The scratch memory of the gradients of a deformable convolution.
#pragma once

#include <cstdint>

#include "kernels/catalog/deform_conv.h"

namespace gradloom::cuda_rows {

// What DeformConvGrad keeps on the way: the gradients of all samples that were drawn, and the sums that the gradient of x is made of.
struct DeformScratch {
  bool samples, sums;  // which there are
  int64_t sample_bytes = 0, sum_bytes = 0, unit_bytes = 0;

  explicit DeformScratch(const KernelCall& call);
  int64_t bytes() const { return sample_bytes + sum_bytes + unit_bytes; }
};

}  // namespace gradloom::cuda_rows

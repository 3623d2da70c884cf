// The windows of Col2Im and Im2Col, and the shape that the indices of MaxUnpool refer to.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// An image and the blocks whose elements are its columns, with one number per spatial axis; `pads` has the begins, then the ends.
struct Columns {
  std::vector<int64_t> image, block, strides, dilations, pads;

  explicit Columns(const KernelCall& call);
  // The number of windows along an axis.
  int64_t Count(size_t d) const {
    const int64_t reach = image[d] + pads[d] + pads[image.size() + d] - dilations[d] * (block[d] - 1) - 1;
    return reach < 0 ? 0 : reach / strides[d] + 1;
  }
};

// Has rank 0 if the attributes do not fit x.
Shape UnpooledShape(const KernelCall& call);

}  // namespace gradloom::cuda_rows

// The windows of Col2Im and Im2Col, and the shape that MaxUnpool's places count in.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// An image and the blocks of it that are its columns: numbers for each of its axes, `pads` for the begins and then the ends.
struct Columns {
  std::vector<int64_t> image, block, strides, dilations, pads;

  explicit Columns(const KernelCall& call);
  // How many windows an axis has.
  int64_t Count(size_t d) const {
    const int64_t reach = image[d] + pads[d] + pads[image.size() + d] - dilations[d] * (block[d] - 1) - 1;
    return reach < 0 ? 0 : reach / strides[d] + 1;
  }
};

// Without axes where the attributes do not fit x.
Shape UnpooledShape(const KernelCall& call);

}  // namespace gradloom::cuda_rows

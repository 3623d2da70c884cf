#pragma once

#include <cstdint>
#include <vector>

namespace gradloom {

// A tensor as cuDNN describes it: extents and strides, in elements, in any order.
struct DnnTensor {
  std::vector<int64_t> dims, strides;

  int64_t elements() const {
    int64_t product = 1;
    for (int64_t extent : dims) product *= extent;
    return product;
  }
};

}  // namespace gradloom

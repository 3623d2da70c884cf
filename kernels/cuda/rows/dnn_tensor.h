// Tensors for cuDNN, described without its headers.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom {

// A tensor as cuDNN describes it: extents and strides, in elements, in any order.
struct DnnTensor {
  std::vector<int64_t> dims, strides;
  // The distance from the address of an operand to the tensor's first element, if the tensor is a part of the operand. Not part of a
  // problem for cuDNN, which gets the address of that element.
  int64_t first = 0;

  int64_t elements() const {
    int64_t product = 1;
    for (int64_t extent : dims) product *= extent;
    return product;
  }
};

}  // namespace gradloom

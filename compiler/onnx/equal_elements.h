// Private to compiler/onnx.
#pragma once

#include <cstddef>
#include <cstring>

#include "runtime/base/tensor.h"

namespace gradloom {

// Whether all elements have the same bytes. Tensors like zeros and ones are often equal without being one tensor of the module.
inline bool HasEqualElements(const Tensor& data) {
  const auto* bytes = static_cast<const std::byte*>(data.data());
  const auto size = static_cast<size_t>(DTypeBytes(data.dtype()));
  for (int64_t i = 1; i < data.elements(); ++i) {
    if (std::memcmp(bytes, bytes + static_cast<size_t>(i) * size, size) != 0) return false;
  }
  return true;
}

}  // namespace gradloom

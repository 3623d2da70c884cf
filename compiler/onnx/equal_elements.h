// Private to compiler/onnx.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <unordered_set>

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

// Whether an element occurs more than once.
inline bool HasRepeatedElements(const Tensor& data) {
  const auto* bytes = static_cast<const char*>(data.data());
  const auto size = static_cast<size_t>(DTypeBytes(data.dtype()));
  std::unordered_set<std::string_view> seen;
  for (int64_t i = 0; i < data.elements(); ++i) {
    if (!seen.emplace(bytes + static_cast<size_t>(i) * size, size).second) return true;
  }
  return false;
}

}  // namespace gradloom

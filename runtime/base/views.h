// Operators that give their operand another shape, for the compiler and for those who read plans.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gradloom {

// Whether output 0 of the operator has the elements of input 0 in the same row-major order. `domain`: "" is ONNX's.
constexpr bool KeepsElements(std::string_view domain, std::string_view op) {
  constexpr std::string_view kViews[] = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"};
  return domain.empty() && std::find(std::begin(kViews), std::end(kViews), op) != std::end(kViews);
}

}  // namespace gradloom

// Models in which the data of a step determine extents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"

namespace gradloom {

constexpr int64_t kRows = 6;

// The operands of every case: x float[6,4], the masks m and k over its rows, c over its elements, ids and labels of its rows, and weights w
// and v. The body computes y from them.
struct ExtentCase {
  std::string name;
  std::string body;
};

Model ModelOf(const ExtentCase& test);
std::vector<ExtentCase> Cases();

}  // namespace gradloom

#include "tests/ops/case_list.h"

namespace gradloom {

// No coordinate lies on a sample or on the border, where the gradient of the grid jumps.
std::vector<OpCase> GridSampleCases() {
  std::vector<OpCase> cases;
  const OpOperand x = In({2, 3, 4, 5}), grid = Distinct({2, 3, 3, 2}, -1.4317, 1.3729);
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int64_t align : {0, 1}) {
        cases.push_back({.op = "GridSample",
                         .operands = {x, grid},
                         .attributes = {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", align}},
                         .half = false});
      }
    }
  }
  cases.push_back({.op = "GridSample", .operands = {In({1, 2, 3, 4, 2}), Distinct({1, 2, 2, 2, 3}, -0.9317, 0.9129)}, .half = false});
  cases.push_back({.op = "GridSampleGrad",
                   .operands = {x, grid, In({2, 3, 3, 3})},
                   .attributes = {{"wanted", std::vector<int64_t>{0, 1}}},
                   .domain = "gradloom",
                   .outputs = 2,
                   .gradient = false,
                   .half = false});
  return cases;
}

}  // namespace gradloom

#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> ResizeCases() {
  const OpOperand x = In({2, 3, 4, 5});
  const auto mode = [](const char* name) { return std::string(name); };
  return {
      {"Resize",
       {x, Absent(), Absent(), Ints({2, 3, 8, 10})},
       {{"mode", mode("nearest")}, {"coordinate_transformation_mode", mode("asymmetric")}}},
      {"Resize", {x, Absent(), Absent(), Ints({2, 3, 7, 3})}, {{"mode", mode("linear")}}},
      {"Resize",
       {x, Absent(), Absent(), Ints({2, 3, 8, 10})},
       {{"mode", mode("linear")}, {"coordinate_transformation_mode", mode("align_corners")}}},
      {"Resize", {x, Absent(), Absent(), Ints({2, 3, 6, 3})}, {{"mode", mode("cubic")}, {"cubic_coeff_a", -0.5}}},
      {"Resize", {x, Absent(), Absent(), Ints({2, 3, 2, 3})}, {{"mode", mode("linear")}, {"antialias", int64_t{1}}}},
      {"Resize",
       {x, Absent(), Absent(), Ints({9, 4})},
       {{"mode", mode("cubic")}, {"axes", std::vector<int64_t>{3, 2}}, {"exclude_outside", int64_t{1}}}},
      {.op = "ResizeGrad",
       .operands = {In({2, 3, 8, 10}), Absent(), Absent(), Ints({2, 3, 8, 10})},
       .attributes = {{"mode", mode("nearest")}, {"input_shape", std::vector<int64_t>{2, 3, 4, 5}}},
       .domain = "gradloom",
       .gradient = false},
  };
}

}  // namespace gradloom

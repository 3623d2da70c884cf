#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> ResizeCases() {
  const OpOperand x = In({2, 3, 4, 5});
  const auto mode = [](const char* name) { return std::string(name); };
  std::vector<OpCase> cases = {
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
  // Every combination of the modes, with one axis that grows and one that shrinks.
  const OpOperand image = In({1, 1, 4, 5}), sizes = Ints({1, 1, 7, 3}), region = Fixed({0, 0, 0.125, -0.25, 1, 1, 0.875, 1.25}, {8});
  for (const char* coordinates :
       {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"}) {
    const bool crops = mode(coordinates) == "tf_crop_and_resize";
    for (int64_t exclude_outside : {0, 1}) {
      const auto add = [&](const char* name, const char* attribute, const Attribute& value) {
        cases.push_back({"Resize",
                         {image, crops ? region : Absent(), Absent(), sizes},
                         {{"mode", mode(name)},
                          {"coordinate_transformation_mode", mode(coordinates)},
                          {"extrapolation_value", 0.5},
                          {"exclude_outside", exclude_outside},
                          {attribute, value}}});
      };
      for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
        add("nearest", "nearest_mode", mode(rounding));
      for (const char* name : {"linear", "cubic"}) {
        for (int64_t antialias : {0, 1}) add(name, "antialias", antialias);
      }
    }
  }
  return cases;
}

}  // namespace gradloom

#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> RegionOfInterestCases() {
  const std::vector<int64_t> ones{1, 1}, twos{2, 2};
  std::vector<OpCase> cases = {
      {.op = "Col2Im", .operands = {In({2, 12, 9}), Ints({4, 4}), Ints({2, 2})}},
      {.op = "Col2Im",
       .operands = {In({1, 8, 9}), Ints({5, 6}), Ints({2, 2})},
       .attributes = {{"strides", twos}, {"pads", std::vector<int64_t>{0, 1, 1, 0}}}},
      {.op = "Col2Im", .operands = {In({1, 6, 3}), Ints({7}), Ints({3})}, .attributes = {{"dilations", std::vector<int64_t>{2}}}},
      {.op = "Im2Col",
       .operands = {In({2, 3, 4, 4})},
       .attributes = {{"block", twos}, {"shape", std::vector<int64_t>{2, 12, 9}}},
       .domain = "gradloom"},
      {.op = "MaxUnpool",
       .operands = {In({1, 1, 2, 2}), Fed(Tensor::From<int64_t>({5, 7, 13, 15}, {1, 1, 2, 2}))},
       .attributes = {{"kernel_shape", twos}, {"strides", twos}}},
      {.op = "MaxUnpool",
       .operands = {In({1, 1, 2, 2}), Fed(Tensor::From<int64_t>({5, 7, 13, 15}, {1, 1, 2, 2})), Ints({1, 1, 5, 5})},
       .attributes = {{"kernel_shape", twos}, {"strides", twos}}},
  };
  // Offsets that place no point on a pixel, where the gradient of an offset jumps.
  const OpOperand x = In({2, 4, 4, 5}), w = In({4, 2, 2, 2}), offset = Distinct({2, 16, 3, 4}, -0.4317, 0.4729);
  const Attributes grouped{{"group", int64_t{2}}, {"offset_group", int64_t{2}}, {"kernel_shape", twos}};
  cases.push_back({.op = "DeformConv", .operands = {x, w, offset, In({4}), In({2, 8, 3, 4})}, .attributes = grouped, .half = false});
  cases.push_back({.op = "DeformConv", .operands = {x, w, offset}, .attributes = grouped, .half = false});
  cases.push_back({.op = "DeformConv",
                   .operands = {In({1, 1, 5, 5}), In({1, 1, 2, 2}), Distinct({1, 8, 3, 3}, -0.4317, 0.4729)},
                   .attributes = {{"strides", twos}, {"pads", std::vector<int64_t>{1, 1, 0, 0}}, {"kernel_shape", twos}},
                   .half = false});
  const OpOperand boxes = Fixed({0.3, 0.2, 3.1, 2.9, 1.2, 0.4, 4.2, 3.3}, {2, 4});
  for (const char* mode : {"avg", "max"}) {
    for (const char* transformation : {"half_pixel", "output_half_pixel"}) {
      cases.push_back({.op = "RoiAlign",
                       .operands = {Distinct({2, 2, 4, 5}), boxes, Ints({1, 0})},
                       .attributes = {{"mode", std::string(mode)},
                                      {"coordinate_transformation_mode", std::string(transformation)},
                                      {"output_height", int64_t{2}},
                                      {"output_width", int64_t{3}},
                                      {"sampling_ratio", int64_t{2}}},
                       .half = false});
    }
  }
  // A box inside its image, a box of one pixel, and one that extends past the border.
  const OpOperand regions = Fixed({1, 0.6, 1.2, 7.1, 6.9, 0, 4.2, 2.4, 4.2, 2.4, 1, -4.0, 6.0, 3.0, 20.0}, {3, 5});
  for (const double scale : {1.0, 0.5}) {
    cases.push_back({.op = "MaxRoiPool",
                     .operands = {Distinct({2, 2, 6, 5}), regions},
                     .attributes = {{"pooled_shape", std::vector<int64_t>{2, 3}}, {"spatial_scale", scale}},
                     .half = false});
  }
  for (const char* mode : {"linear", "circular"}) {
    cases.push_back({.op = "TensorScatter",
                     .operands = {In({2, 3, 4, 2}), In({2, 3, 2, 2}), Fed(Tensor::From<int64_t>({2, 1}, {2}))},
                     .attributes = {{"mode", std::string(mode)}}});
  }
  cases.push_back({.op = "TensorScatter", .operands = {In({2, 4, 2}), In({2, 3, 2})}, .attributes = {{"axis", int64_t{1}}}});
  cases.push_back({.op = "TensorGather",
                   .operands = {In({2, 4, 2}), Fed(Tensor::From<int64_t>({2, 3}, {2}))},
                   .attributes = {{"axis", int64_t{1}}, {"mode", std::string("circular")}, {"shape", std::vector<int64_t>{2, 3, 2}}},
                   .domain = "gradloom"});
  return cases;
}

}  // namespace gradloom

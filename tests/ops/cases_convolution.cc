#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

using Ints64 = std::vector<int64_t>;

constexpr int64_t kOne = 1;

void AddConvolutions(std::vector<OpCase>& cases) {
  const auto conv = [&](Shape x, Shape w, Attributes attributes, bool bias, const char* note) {
    std::vector<OpOperand> operands{In(x), In(w)};
    if (bias) operands.push_back(In({w[0]}));
    cases.push_back({"Conv", operands, std::move(attributes), "", 1, note});
  };
  conv({2, 3, 7}, {4, 3, 3}, {}, true, "1d");
  conv({2, 2, 5, 6}, {3, 2, 3, 2}, {{"pads", Ints64{1, 0, 2, 1}}, {"strides", Ints64{2, 1}}}, true, "uneven pads");
  conv({1, 4, 5, 5}, {6, 2, 3, 3}, {{"group", int64_t{2}}, {"dilations", Ints64{2, 1}}, {"pads", Ints64{1, 1, 1, 1}}}, false, "groups");
  conv({2, 3, 4, 4}, {3, 1, 2, 2}, {{"group", int64_t{3}}}, true, "depthwise");
  conv({1, 2, 6, 5}, {2, 2, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints64{2, 2}}}, true, "same upper");
  conv({1, 2, 6, 5}, {2, 2, 2, 2}, {{"auto_pad", std::string("SAME_LOWER")}}, true, "same lower");
  conv({1, 1, 3, 4, 3}, {2, 1, 2, 2, 2}, {{"strides", Ints64{1, 2, 1}}}, true, "3d");
  conv({2, 3, 4, 4}, {5, 3, 1, 1}, {}, false, "1 x 1");
  conv({1, 2, 8, 8}, {2, 2, 3, 3}, {{"strides", Ints64{3, 3}}}, false, "points that no window covers");
}

void AddTransposed(std::vector<OpCase>& cases) {
  const auto transposed = [&](Shape x, Shape w, Attributes attributes, int64_t bias, const char* note) {
    std::vector<OpOperand> operands{In(x), In(w)};
    if (bias > 0) operands.push_back(In({bias}));
    cases.push_back({"ConvTranspose", operands, std::move(attributes), "", 1, note});
  };
  transposed({2, 3, 4}, {3, 2, 3}, {}, 2, "1d");
  transposed({1, 2, 3, 3}, {2, 3, 3, 3}, {{"strides", Ints64{2, 2}}, {"pads", Ints64{1, 1, 1, 1}}, {"output_padding", Ints64{1, 1}}}, 3,
             "output padding");
  transposed({1, 4, 3, 3}, {4, 2, 2, 3}, {{"group", int64_t{2}}, {"dilations", Ints64{2, 1}}, {"pads", Ints64{0, 1, 1, 0}}}, 4, "groups");
  transposed({1, 1, 3, 3}, {1, 2, 3, 3}, {{"strides", Ints64{3, 2}}, {"output_shape", Ints64{10, 8}}}, 0, "output shape");
}

void AddOwn(std::vector<OpCase>& cases) {
  const Attributes geometry{{"kernel_shape", Ints64{3, 2}},
                            {"strides", Ints64{2, 1}},
                            {"dilations", Ints64{1, 1}},
                            {"pads", Ints64{1, 0, 1, 1}},
                            {"group", kOne}};
  Attributes input = geometry, weight = geometry;
  input.set("shape", Ints64{2, 2, 5, 4});
  weight.set("shape", Ints64{3, 2, 3, 2});
  cases.push_back({"ConvGradInput", {In({2, 3, 3, 4}), In({3, 2, 3, 2})}, input, "gradloom"});
  cases.push_back({"ConvGradWeight", {In({2, 2, 5, 4}), In({2, 3, 3, 4})}, weight, "gradloom"});
}

}  // namespace

std::vector<OpCase> ConvolutionCases() {
  std::vector<OpCase> cases;
  AddConvolutions(cases);
  AddTransposed(cases);
  AddOwn(cases);
  return cases;
}

std::vector<OpCase> PoolingCases() {
  std::vector<OpCase> cases;
  const std::vector<std::pair<Shape, Attributes>> geometries = {
      {{2, 2, 7}, {{"kernel_shape", Ints64{3}}, {"strides", Ints64{2}}}},
      {{1, 2, 5, 6}, {{"kernel_shape", Ints64{3, 2}}, {"pads", Ints64{1, 0, 1, 1}}, {"strides", Ints64{2, 2}}}},
      {{1, 2, 5, 5}, {{"kernel_shape", Ints64{2, 2}}, {"strides", Ints64{2, 2}}, {"ceil_mode", kOne}}},
      {{1, 1, 6, 6}, {{"kernel_shape", Ints64{2, 2}}, {"dilations", Ints64{2, 3}}}},
      {{1, 1, 5, 5}, {{"kernel_shape", Ints64{3, 3}}, {"strides", Ints64{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}},
      {{1, 2, 3, 4, 3}, {{"kernel_shape", Ints64{2, 2, 2}}}},
  };
  for (const auto& [x, attributes] : geometries) {
    cases.push_back({"MaxPool", {Distinct(x)}, attributes});
    cases.push_back({"AveragePool", {In(x)}, attributes});
    Attributes counted = attributes;
    counted.set("count_include_pad", kOne);
    cases.push_back({"AveragePool", {In(x)}, counted});
    for (int64_t p : {1, 2, 3}) {
      Attributes power = attributes;
      power.set("p", p);
      cases.push_back({"LpPool", {In(x, 0.5, 2)}, power});
    }
  }
  for (const Shape& x : {Shape{2, 3, 5}, Shape{1, 2, 3, 4}}) {
    cases.push_back({"GlobalAveragePool", {In(x)}});
    cases.push_back({"GlobalMaxPool", {Distinct(x)}});
    cases.push_back({"GlobalLpPool", {In(x, 0.5, 2)}, {{"p", int64_t{3}}}});
  }
  cases.push_back({"AveragePoolGrad",
                   {In({1, 2, 2, 2})},
                   {{"kernel_shape", Ints64{2, 2}}, {"strides", Ints64{2, 2}}, {"shape", Ints64{1, 2, 4, 5}}},
                   "gradloom"});
  return cases;
}

}  // namespace gradloom

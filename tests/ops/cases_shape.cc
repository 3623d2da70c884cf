#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kZero = 0, kOne = 1, kTwo = 2;

void AddViews(std::vector<OpCase>& cases) {
  cases.push_back({"Reshape", {In({2, 3, 4}), Ints({4, -1})}});
  cases.push_back({"Reshape", {In({2, 3, 4}), Ints({0, 12})}, {}, "", 1, "a copied extent"});
  cases.push_back({"Reshape", {In({1}), Ints({})}, {}, "", 1, "to a scalar"});
  cases.push_back({"Flatten", {In({2, 3, 4})}});
  cases.push_back({"Flatten", {In({2, 3, 4})}, {{"axis", int64_t{-1}}}});
  cases.push_back({"Squeeze", {In({1, 3, 1})}});
  cases.push_back({"Squeeze", {In({1, 3, 1}), Ints({-1})}});
  cases.push_back({"Unsqueeze", {In({3, 2}), Ints({0, -1})}});
  cases.push_back({"Transpose", {In({2, 3, 4})}});
  cases.push_back({"Transpose", {In({2, 3, 4})}, {{"perm", std::vector<int64_t>{1, 2, 0}}}});
  cases.push_back({"Expand", {In({3, 1}), Ints({2, 3, 4})}});
  cases.push_back({"Expand", {In({3, 4}), Ints({1, 1})}, {}, "", 1, "a smaller target"});
}

void AddJoins(std::vector<OpCase>& cases) {
  cases.push_back({"Concat", {In({2, 1}), In({2, 3}), In({2, 2})}, {{"axis", kOne}}});
  cases.push_back({"Concat", {In({1, 2, 2}), In({3, 2, 2})}, {{"axis", int64_t{-3}}}});
  cases.push_back({"Concat", {In({2, 2})}, {{"axis", kZero}}});
  cases.push_back({"Concat", {In({2, 2}), Fixed({1, 2}, {1, 2}), Fixed({3, 4}, {1, 2})}, {{"axis", kZero}}, "", 1, "one gradient"});
  cases.push_back({"Split", {In({2, 6}), Ints({1, 2, 3})}, {{"axis", kOne}}, "", 3});
  cases.push_back({"Split", {In({7, 2})}, {{"num_outputs", kTwo}}, "", 2, "uneven"});
  cases.push_back({"Tile", {In({2, 3}), Ints({2, 3})}});
  cases.push_back({"Tile", {In({2, 1, 3}), Ints({1, 4, 1})}});
}

void AddSlices(std::vector<OpCase>& cases) {
  cases.push_back({"Slice", {In({4, 5}), Ints({1}), Ints({3})}});
  cases.push_back({"Slice", {In({4, 5}), Ints({1, 0}), Ints({3, 5}), Ints({0, 1}), Ints({1, 2})}});
  cases.push_back({"Slice", {In({6}), Ints({-1}), Ints({-100}), Ints({0}), Ints({-2})}, {}, "", 1, "backwards"});
  cases.push_back({"Slice", {In({3, 4}), Ints({-2}), Ints({1000}), Ints({-1})}, {}, "", 1, "past the end"});
  cases.push_back({"SliceGrad",
                   {In({2, 3}), Ints({1, 0}), Ints({3, 5}), Ints({0, 1}), Ints({1, 2})},
                   {{"shape", std::vector<int64_t>{4, 5}}},
                   "gradloom"});
}

void AddPads(std::vector<OpCase>& cases) {
  const auto mode = [](const char* name) { return Attributes{{"mode", std::string(name)}}; };
  for (const char* name : {"constant", "edge", "reflect", "wrap"}) {
    cases.push_back({"Pad", {In({3, 4}), Ints({1, 2, 0, 1})}, mode(name)});
    cases.push_back({"Pad", {In({2, 3}), Ints({1, 1}), Absent(), Ints({-1})}, mode(name), "", 1, "one axis"});
  }
  cases.push_back({"Pad", {In({3, 4}), Ints({1, -1, -1, 2})}, mode("constant"), "", 1, "cuts"});
  cases.push_back({"Pad", {In({3, 4}), Ints({1, 2, 0, 1}), Fed({0.5}, {})}, mode("constant"), "", 1, "fed border"});
  cases.push_back(
      {"PadGrad", {In({4, 7}), Ints({1, 2, 0, 1})}, {{"mode", std::string("reflect")}, {"shape", std::vector<int64_t>{3, 4}}}, "gradloom"});
}

void AddBlocks(std::vector<OpCase>& cases) {
  for (const char* mode : {"DCR", "CRD"}) {
    const Attributes attributes{{"blocksize", kTwo}, {"mode", std::string(mode)}};
    cases.push_back({"DepthToSpace", {In({2, 8, 2, 3})}, attributes});
    cases.push_back({"SpaceToDepth", {In({2, 2, 4, 6})}, attributes});
  }
  for (int64_t upper : {0, 1}) {
    cases.push_back({"Trilu", {In({2, 3, 4})}, {{"upper", upper}}});
    cases.push_back({"Trilu", {In({3, 3}), Int(-1)}, {{"upper", upper}}});
  }
  const OpOperand lengths = Fed(Tensor::From<int64_t>({2, 0, 3}, {3}));
  cases.push_back({"ReverseSequence", {In({4, 3, 2}), lengths}});
  cases.push_back({"ReverseSequence", {In({3, 4}), lengths}, {{"batch_axis", kZero}, {"time_axis", kOne}}});
}

void AddMade(std::vector<OpCase>& cases) {
  const auto flat = [&](const std::string& op, std::vector<OpOperand> operands, Attributes attributes = {}) {
    cases.push_back({.op = op, .operands = std::move(operands), .attributes = std::move(attributes), .gradient = false});
  };
  flat("Shape", {In({2, 3, 4})});
  flat("Shape", {In({2, 3, 4})}, {{"start", int64_t{-2}}, {"end", kTwo}});
  flat("Size", {In({2, 3, 4})});
  flat("ConstantOfShape", {Ints({2, 3})}, {{"value", Tensor::From<int64_t>({7}, {1})}});
  flat("ConstantOfShape", {Ints({2, 3})});
  flat("Constant", {}, {{"value_ints", std::vector<int64_t>{1, 2, 3}}});
  flat("Constant", {}, {{"value_float", 2.5}});
  flat("Range", {Int(3), Int(-8), Int(-2)});
  flat("Range", {Int(3), Int(3), Int(1)});
  flat("Range", {Fixed({0.5}, {}), Fixed({4}, {}), Fixed({0.75}, {})});
  flat("EyeLike", {In({3, 4})}, {{"k", kOne}});
}

}  // namespace

std::vector<OpCase> ShapeCases() {
  std::vector<OpCase> cases;
  AddViews(cases);
  AddJoins(cases);
  AddSlices(cases);
  AddPads(cases);
  AddBlocks(cases);
  AddMade(cases);
  return cases;
}

}  // namespace gradloom

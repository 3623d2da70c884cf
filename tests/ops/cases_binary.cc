#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kOne = 1;

Attributes Cast(DType to) { return {{"to", static_cast<int64_t>(to)}}; }

// Broadcasting: equal shapes, trailing axes, both ways, a scalar on either side, an empty axis.
void AddBroadcasts(std::vector<OpCase>& cases, const std::string& op, double low, double high) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{2, 3}, {2, 3}}, {{2, 3, 4}, {4}}, {{2, 1, 4}, {3, 1}}, {{}, {2, 2}},
                                                       {{3, 2}, {}},     {{2, 0}, {1, 1}}, {{1, 1, 3}, {3}}};
  for (const auto& [a, b] : shapes) cases.push_back({op, {In(a), In(b, low, high)}});
}

void AddArithmetic(std::vector<OpCase>& cases) {
  AddBroadcasts(cases, "Add", -2, 2);
  AddBroadcasts(cases, "Sub", -2, 2);
  AddBroadcasts(cases, "Mul", -2, 2);
  AddBroadcasts(cases, "Div", 0.5, 2);
  cases.push_back({"Pow", {In({2, 3}, 0.3, 2), In({2, 3}, -2, 3)}});
  cases.push_back({"Pow", {In({2, 1, 3}, 0.3, 2), In({2, 1}, -2, 3)}});
  for (double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 4.0}) {
    cases.push_back({"Pow", {In({5}, 0.3, 2), Fixed({exponent}, {})}, {}, "", 1, "to the " + std::to_string(exponent)});
  }
  cases.push_back({"Pow", {In({5}, -2, 2), Ints({3})}, {}, "", 1, "integer exponent"});
  cases.push_back({"Mod", {In({6}, -5, 5), In({6}, 1.2, 1.8)}, {{"fmod", kOne}}});
  cases.back().half = false;
  const OpCase integers[] = {{"Div", {Indices({6}, -20, 20), Indices({6}, 1, 5)}},    {"Mod", {Indices({6}, -20, 20), Indices({6}, 1, 5)}},
                             {"Add", {Indices({6}, -20, 20), Indices({1}, 1, 5)}},    {"Mul", {Indices({6}, -20, 20), Indices({6}, 1, 5)}},
                             {"Sub", {Indices({6}, -20, 20), Indices({2, 1}, 1, 5)}}, {"Pow", {Indices({6}, -4, 4), Indices({6}, 0, 4)}}};
  for (OpCase op_case : integers) {
    op_case.gradient = false;
    cases.push_back(std::move(op_case));
  }
}

void AddTests(std::vector<OpCase>& cases) {
  for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
    cases.push_back({.op = op, .operands = {Indices({3, 4}, 0, 3), Indices({4}, 0, 3)}, .gradient = false});
    cases.push_back({.op = op, .operands = {In({3, 1}), In({4})}, .gradient = false, .half = false});
  }
  for (const char* op : {"And", "Or", "Xor"}) cases.push_back({.op = op, .operands = {Bools({3, 4}), Bools({4})}, .gradient = false});
  for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) {
    cases.push_back({.op = op, .operands = {Indices({3, 4}, -8, 8), Indices({4}, -8, 8)}, .gradient = false});
  }
  OpOperand words = Indices({6}, 0, 200), shifts = Indices({6}, 0, 12);
  words.dtype = shifts.dtype = DType::kUint8;
  for (const char* way : {"LEFT", "RIGHT"}) {
    cases.push_back({.op = "BitShift", .operands = {words, shifts}, .attributes = {{"direction", std::string(way)}}, .gradient = false});
  }
}

void AddChoices(std::vector<OpCase>& cases) {
  for (const char* op : {"Max", "Min", "Sum", "Mean"}) {
    cases.push_back({op, {In({2, 3})}});
    cases.push_back({op, {In({2, 3}), In({2, 3})}});
    cases.push_back({op, {In({2, 1, 3}), In({4, 1})}});
    cases.push_back({op, {In({2, 3}), In({3}), In({2, 1})}});
    cases.push_back({op, {In({2, 2}), In({}), In({2}), In({1, 1})}});
  }
  // Without a true element, the gradient is that of an Identity.
  cases.push_back({"MaskGradient", {In({2, 3}), Fed(Tensor(DType::kBool, {2, 1}))}, {}, "gradloom"});
  cases.push_back({"Where", {Bools({2, 3}), In({2, 3}), In({2, 3})}});
  cases.push_back({"Where", {Bools({2, 1}), In({3}), In({})}});
  cases.push_back({"Where", {Bools({3}), In({2, 1}), In({2, 3})}});
  cases.push_back({"Clip", {In({3, 4})}, {}, "", 1, "no bounds"});
  cases.push_back({"Clip", {In({3, 4}), Fixed({-0.5}, {}), Fixed({0.75}, {})}});
  cases.push_back({"Clip", {In({3, 4}), Fixed({-0.5}, {})}});
  cases.push_back({"Clip", {In({3, 4}), Absent(), Fixed({0.5}, {})}});
  cases.push_back({"Clip", {In({3, 4}), Fed({-0.5}, {}), Fed({0.75}, {})}, {}, "", 1, "fed bounds"});
  cases.push_back({"Clip", {In({3, 4}), Fed({0.5}, {}), Fed({-0.75}, {})}, {}, "", 1, "crossed bounds"});
}

void AddCasts(std::vector<OpCase>& cases) {
  cases.push_back({"Cast", {In({3, 4})}, Cast(DType::kFloat64)});
  cases.push_back({"Cast", {In({3, 4})}, Cast(DType::kFloat32), "", 1, "to its own type"});
  cases.push_back({"CastLike", {In({3, 4}), In({1})}});
  for (DType to : {DType::kInt32, DType::kUint8, DType::kBool, DType::kInt64}) {
    cases.push_back({.op = "Cast", .operands = {In({3, 4}, 0, 9)}, .attributes = Cast(to), .gradient = false, .half = false});
    cases.push_back({.op = "Cast", .operands = {Bools({5})}, .attributes = Cast(to), .gradient = false});
  }
}

}  // namespace

std::vector<OpCase> BinaryCases() {
  std::vector<OpCase> cases;
  AddArithmetic(cases);
  AddTests(cases);
  AddChoices(cases);
  AddCasts(cases);
  return cases;
}

}  // namespace gradloom

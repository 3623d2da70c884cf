#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> UnaryCases() {
  std::vector<OpCase> cases;
  const auto smooth = [&](const std::string& op, double low, double high) {
    cases.push_back({op, {In({2, 3, 4}, low, high)}});
    cases.push_back({op, {In({}, low, high)}, {}, "", 1, "scalar"});
  };
  const auto flat = [&](const std::string& op, OpOperand operand, Attributes attributes = {}) {
    cases.push_back({.op = op, .operands = {std::move(operand)}, .attributes = std::move(attributes), .gradient = false, .half = false});
  };
  for (const char* op : {"Abs", "Neg", "Erf", "Exp", "Sin", "Cos", "Sinh", "Cosh", "Tanh", "Atan", "Asinh", "Identity"}) smooth(op, -2, 2);
  for (const char* op : {"Acos", "Asin", "Atanh"}) smooth(op, -0.9, 0.9);
  smooth("Tan", -1.2, 1.2);
  smooth("Acosh", 1.1, 3);
  smooth("Sqrt", 0.1, 4);
  smooth("Log", 0.1, 4);
  smooth("Reciprocal", 0.5, 3);
  smooth("Reciprocal", -3, -0.5);
  for (const char* op : {"Ceil", "Floor", "Round", "Sign"}) flat(op, In({3, 5}, -4, 4));
  for (const char* op : {"IsNaN", "IsInf"}) flat(op, In({4}));
  flat("IsInf", In({4}), {{"detect_negative", int64_t{0}}});
  flat("Not", Bools({7}));
  flat("BitwiseNot", Indices({5}, -9, 9));
  flat("Abs", Indices({5}, -9, 9));
  flat("Neg", Indices({5}, -9, 9));
  return cases;
}

}  // namespace gradloom

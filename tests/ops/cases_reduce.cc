#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kZero = 0, kOne = 1;

void AddReductions(std::vector<OpCase>& cases, const std::string& op, OpOperand (*draw)(Shape, double, double), double low, double high) {
  cases.push_back({op, {draw({2, 3, 4}, low, high)}});
  cases.push_back({op, {draw({2, 3, 4}, low, high), Ints({1})}});
  cases.push_back({op, {draw({2, 3, 4}, low, high), Ints({-1, 0})}, {{"keepdims", kZero}}});
  cases.push_back({op, {draw({2, 3}, low, high)}, {{"keepdims", kZero}}});
  cases.push_back({op, {draw({5}, low, high), Ints({0})}, {{"keepdims", kZero}}});
  cases.push_back({op, {draw({3, 1, 2}, low, high), Ints({1})}});
  cases.push_back({op, {draw({2, 2}, low, high), Ints({})}, {{"noop_with_empty_axes", kOne}}});
  cases.push_back({op, {draw({2, 2}, low, high), Ints({})}});
  cases.push_back({op, {draw({}, low, high)}, {}, "", 1, "scalar"});
}

void AddRunning(std::vector<OpCase>& cases, const std::string& op) {
  for (int64_t exclusive : {0, 1}) {
    for (int64_t reverse : {0, 1}) {
      const Attributes attributes{{"exclusive", exclusive}, {"reverse", reverse}};
      cases.push_back({op, {In({2, 4, 3}), Int(1)}, attributes});
      cases.push_back({op, {In({5}), Int(-1)}, attributes});
    }
  }
}

}  // namespace

std::vector<OpCase> ReduceCases() {
  std::vector<OpCase> cases;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceLogSumExp", "ReduceSumSquare"}) {
    AddReductions(cases, op, In, -2, 2);
  }
  AddReductions(cases, "ReduceLogSum", In, 0.5, 3);
  AddReductions(cases, "ReduceMax", Distinct, -2, 2);
  AddReductions(cases, "ReduceMin", Distinct, -2, 2);
  cases.push_back({"ReduceLogSumExp", {In({3, 4}, 300, 800), Ints({1})}, {}, "", 1, "no overflow"});
  cases.back().half = false;
  cases.push_back({"ReduceProd", {Fed({0, 2, 3, 0, 0, 4}, {2, 3}), Ints({1})}, {}, "", 1, "zeros"});
  AddRunning(cases, "CumSum");
  AddRunning(cases, "CumProd");
  cases.push_back({"CumProd", {Fed({2, 0, 3, 0, 4}, {5}), Int(0)}, {}, "", 1, "zeros"});
  for (const char* op : {"ArgMax", "ArgMin"}) {
    cases.push_back({.op = op, .operands = {Distinct({2, 3, 4})}, .gradient = false});
    cases.push_back(
        {.op = op, .operands = {Distinct({2, 3})}, .attributes = {{"axis", int64_t{-1}}, {"keepdims", kZero}}, .gradient = false});
    cases.push_back({.op = op, .operands = {Indices({9}, 0, 3)}, .attributes = {{"select_last_index", kOne}}, .gradient = false});
  }
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"}) {
    cases.push_back({.op = op, .operands = {Indices({2, 5}, -5, 5), Ints({1})}, .note = "integers", .gradient = false});
  }
  return cases;
}

}  // namespace gradloom

#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kZero = 0, kOne = 1;

OpOperand At(std::vector<int64_t> values, Shape shape) { return Fed(Tensor::From(values, std::move(shape))); }

void AddGathers(std::vector<OpCase>& cases) {
  cases.push_back({"Gather", {In({5, 3}), Indices({2, 4}, -5, 5)}});
  cases.push_back({"Gather", {In({2, 5, 3}), Indices({6}, -5, 5)}, {{"axis", int64_t{-2}}}});
  cases.push_back({"Gather", {In({2, 5}), Indices({}, 0, 5)}, {{"axis", kOne}}, "", 1, "one index"});
  cases.push_back(
      {"GatherGrad", {Indices({6}, -5, 5), In({2, 6, 3})}, {{"axis", kOne}, {"shape", std::vector<int64_t>{2, 5, 3}}}, "gradloom"});
  cases.push_back({"SetRow", {In({5, 3}), Indices({}, 0, 5), In({3})}, {}, "gradloom"});
  cases.push_back({"SetRow", {In({5, 3}), Indices({}, -5, 0), In({3})}, {}, "gradloom"});
  cases.push_back({"SetRow", {In({4, 2, 3}), Indices({1}, 0, 4), In({2, 3})}, {}, "gradloom"});
  cases.push_back({"Copy", {In({2, 3})}, {}, "gradloom"});
  cases.push_back({"GatherElements", {In({3, 4}), Indices({2, 4}, -3, 3)}});
  cases.push_back({"GatherElements", {In({3, 4}), Indices({3, 5}, -4, 4)}, {{"axis", kOne}}});
  cases.push_back({"GatherND", {In({3, 4, 2}), Indices({5, 2}, -3, 3)}});
  cases.push_back({"GatherND", {In({3, 4}), Indices({2, 3, 1}, -3, 3)}});
  cases.push_back({"GatherND", {In({2, 3, 4}), Indices({2, 5, 1}, -3, 3)}, {{"batch_dims", kOne}}});
  cases.push_back({"GatherNDGrad",
                   {Indices({2, 5, 1}, -3, 3), In({2, 5, 4})},
                   {{"batch_dims", kOne}, {"shape", std::vector<int64_t>{2, 3, 4}}},
                   "gradloom"});
}

OpOperand Known(const std::vector<bool>& values) {
  OpOperand operand = Fed(Tensor::From(values, {static_cast<int64_t>(values.size())}));
  operand.values = OpOperand::Values::kFixed;
  return operand;
}

// Repeated indices with a reduction, and distinct ones without, where the order would matter.
void AddScatters(std::vector<OpCase>& cases) {
  cases.push_back({"ScatterElements", {In({3, 4}), At({2, 0, 1, -3, 0, 2, 0, 1}, {2, 4}), In({2, 4})}});
  cases.push_back({"ScatterND", {In({4, 3}), At({2, -4}, {2, 1}), In({2, 3})}});
  for (const char* reduction : {"add", "mul", "max", "min"}) {
    const std::string name = reduction;
    cases.push_back({"ScatterElements",
                     {Distinct({3, 4}, 0.5, 2), Indices({3, 6}, -4, 4), Distinct({3, 6}, 0.45, 2.1)},
                     {{"axis", kOne}, {"reduction", name}}});
    cases.back().operands[1].shape = {3, 4};
    cases.back().operands[2].shape = {3, 4};
    cases.push_back({"ScatterND", {Distinct({3, 4}, 0.5, 2), Indices({6, 2}, -3, 3), Distinct({6}, 0.45, 2.1)}, {{"reduction", name}}});
    cases.push_back(
        {"ScatterND", {Distinct({3, 2, 2}, 0.5, 2), Indices({4, 1}, -3, 3), Distinct({4, 2, 2}, 0.45, 2.1)}, {{"reduction", name}}});
  }
  cases.push_back({"ScatterElements",
                   {Fed({2, 0, 3, 5}, {4}), At({0, 0, 1, 1}, {4}), Fed({0, 3, 2, 0}, {4})},
                   {{"reduction", std::string("mul")}},
                   "",
                   1,
                   "zeros"});
}

// Results whose number of valid elements depends on the data, with room for the maximum.
void AddExtents(std::vector<OpCase>& cases) {
  const auto add = [&](OpCase one) {
    one.domain = "gradloom";
    cases.push_back(std::move(one));
  };
  add({.op = "NonZero", .operands = {Fed({0, 1, 2, 0, 0, 3}, {2, 3})}, .outputs = 2, .gradient = false});
  add({.op = "NonZero", .operands = {Bools({2, 3, 2})}, .outputs = 2, .gradient = false});
  add({.op = "NonZero", .operands = {Fed({0, 0}, {2})}, .outputs = 2, .note = "none", .gradient = false});
  add({.op = "NonZero", .operands = {Fed({3}, {})}, .outputs = 2, .note = "scalar", .gradient = false});
  add({.op = "Unique", .operands = {At({3, 1, 3, 2, 1}, {5})}, .outputs = 4, .gradient = false});
  add({.op = "Unique",
       .operands = {At({1, 2, 1, 0, 3, 0}, {2, 3})},
       .attributes = {{"axis", kOne}, {"sorted", kZero}},
       .outputs = 4,
       .gradient = false});
  add({.op = "NonMaxSuppression",
       .operands = {Fed({0, 0, 1, 1, 0, 0.1, 1, 1.1, 2, 2, 3, 3}, {1, 3, 4}), Distinct({1, 2, 3}, 0, 1), Int(2), Fixed({0.5}, {})},
       .attributes = {{"bound", int64_t{4}}},
       .outputs = 2,
       .gradient = false,
       .half = false,
       .float64 = false});
  add({.op = "SameExtent", .operands = {Fed(Tensor::Scalar<int64_t>(3)), Fed(Tensor::Scalar<int64_t>(3))}, .gradient = false});
  const std::vector<int64_t> vector{7}, matrix{3, 3};
  add({.op = "Repack", .operands = {In({2, 4}), At({2, 3}, {2}), At({6}, {1})}, .attributes = {{"shape", vector}, {"repeat", kZero}}});
  add({.op = "Repack", .operands = {In({7}), At({6}, {1}), At({2, 3}, {2})}, .attributes = {{"shape", matrix}, {"repeat", kZero}}});
  add({.op = "Repack", .operands = {In({2, 2}), At({0, 2}, {2}), At({0}, {1})}, .attributes = {{"shape", vector}}, .note = "none"});
}

}  // namespace

std::vector<OpCase> IndexCases() {
  std::vector<OpCase> cases;
  AddGathers(cases);
  AddScatters(cases);
  AddExtents(cases);
  cases.push_back({"TopK", {Distinct({3, 6}), Ints({2})}, {}, "", 2});
  cases.push_back({"TopK", {Distinct({4, 3}), Ints({3})}, {{"axis", kZero}, {"largest", kZero}}, "", 2});
  cases.push_back({"OneHot", {Indices({2, 3}, -4, 4), Int(4), In({2})}});
  cases.push_back({"OneHot", {Indices({3}, 0, 9), Int(4), In({2})}, {{"axis", kZero}}});
  const OpOperand keep = Known({true, false, true, true});
  cases.push_back({"Compress", {In({4, 3}), keep}, {{"axis", kZero}}});
  cases.push_back({"Compress", {In({2, 5, 2}), keep}, {{"axis", int64_t{-2}}}});
  cases.push_back({"Compress", {In({2, 3}), keep}, {}, "", 1, "flat"});
  cases.push_back({.op = "NonZero", .operands = {Fixed({0, 1, 2, 0, 0, 3}, {2, 3})}, .gradient = false});
  return cases;
}

}  // namespace gradloom

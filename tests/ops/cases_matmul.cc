#include "tests/ops/case_list.h"

namespace gradloom {
namespace {

constexpr int64_t kOne = 1;

void AddGemms(std::vector<OpCase>& cases) {
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      const OpOperand a = ta ? In({4, 3}) : In({3, 4}), b = tb ? In({5, 4}) : In({4, 5});
      const Attributes plain{{"transA", ta}, {"transB", tb}};
      cases.push_back({"Gemm", {a, b, In({5})}, plain});
      cases.push_back({"Gemm", {a, b}, {{"transA", ta}, {"transB", tb}, {"alpha", 0.5}}});
      cases.push_back({"Gemm", {a, b, In({3, 1})}, {{"transA", ta}, {"transB", tb}, {"alpha", 0.5}, {"beta", 2.0}}});
    }
  }
  cases.push_back({"Gemm", {In({3, 4}), In({4, 5}), In({})}, {}, "", 1, "scalar C"});
  cases.push_back({"Gemm", {In({3, 4}), In({4, 5}), In({3, 5})}});
}

// The fused forms of a Gemm that are created after differentiation.
void AddEpilogues(std::vector<OpCase>& cases) {
  for (int64_t ta : {0, 1}) {
    for (int64_t tb : {0, 1}) {
      const OpOperand a = ta ? In({4, 3}) : In({3, 4}), b = tb ? In({8, 4}) : In({4, 8});
      const auto add = [&](const char* op, std::vector<OpOperand> operands, int outputs, Attributes attributes = {}) {
        attributes.set("transA", ta);
        attributes.set("transB", tb);
        cases.push_back({.op = op,
                         .operands = std::move(operands),
                         .attributes = std::move(attributes),
                         .domain = "gradloom",
                         .outputs = outputs,
                         .gradient = false});
      };
      add("GemmRelu", {a, b, In({8})}, 1);
      add("GemmRelu", {a, b}, 1);
      add("GemmGelu", {a, b, In({8})}, 2);
      add("GemmGelu", {a, b}, 2);
      add("GemmGeluGrad", {a, b, In({3, 8})}, 2);
      add("GemmGeluGrad", {a, b, In({3, 8})}, 1);
      for (int64_t summed : {0, 1}) add("GemmBiasGrad", {a, b}, 2, {{"summed", summed}});
    }
  }
}

void AddEinsums(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& equation, std::vector<Shape> shapes) {
    OpCase op_case{.op = "Einsum", .attributes = {{"equation", equation}}};
    for (const Shape& shape : shapes) op_case.operands.push_back(In(shape));
    cases.push_back(std::move(op_case));
  };
  add("ij,jk->ik", {{2, 3}, {3, 4}});
  add("ij,jk", {{2, 3}, {3, 4}});
  add("bhid,bhjd->bhij", {{2, 2, 3, 4}, {2, 2, 5, 4}});
  add("...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}});
  add("ij->ji", {{2, 3}});
  add("ij->", {{2, 3}});
  add("ij->j", {{2, 3}});
  add("ii->i", {{3, 3}});
  add("ii", {{3, 3}});
  add("iij,j->i", {{3, 3, 2}, {2}});
  add("i,j->ij", {{2}, {3}});
  add("i,i,i->i", {{3}, {3}, {3}});
  add("ab,bc,cd->ad", {{2, 3}, {3, 2}, {2, 4}});
  add("...i->...", {{2, 3, 4}});
  add("i...->...i", {{2, 3, 4}});
  add("bkl,ikj->blj", {{2, 1, 1}, {1, 3, 2}});  // a repeated axis next to one that is summed
  add(" b n , n -> b ", {{2, 3}, {3}});
  add("ij,kj->i", {{2, 3}, {4, 3}});
  add("bij,bj->bi", {{1, 3, 4}, {5, 4}});
}

}  // namespace

std::vector<OpCase> MatMulCases() {
  std::vector<OpCase> cases;
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3}, {3, 4}},          {{3}, {3, 4}},       {{2, 3}, {3}},    {{3}, {3}},       {{5, 2, 3}, {3, 4}},    {{5, 2, 3}, {5, 3, 4}},
      {{2, 1, 2, 3}, {5, 3, 4}}, {{2, 3}, {5, 3, 4}}, {{3}, {5, 3, 4}}, {{5, 2, 3}, {3}}, {{5, 2, 3}, {1, 3, 4}}, {{2, 2, 3, 3}, {3, 1}}};
  for (const auto& [a, b] : shapes) cases.push_back({"MatMul", {In(a), In(b)}});
  cases.push_back({"MatMul", {In({2, 0}), In({0, 3})}, {}, "", 1, "empty sum"});
  // No matrices on one side, and one that is broadcast on the other.
  cases.push_back({"MatMul", {In({0, 8, 16}), In({1, 16, 8})}, {}, "", 1, "no left matrices"});
  cases.push_back({"MatMul", {In({8, 16}), In({0, 16, 8})}, {}, "", 1, "no right matrices"});
  AddGemms(cases);
  AddEpilogues(cases);
  AddEinsums(cases);
  cases.push_back({"Det", {In({3, 3})}});
  cases.push_back({"Det", {In({2, 1, 4, 4})}});
  cases.push_back({"Det", {In({1, 1})}});
  cases.push_back({"Det", {Fed({1, 2, 2, 4}, {2, 2})}, {}, "", 1, "singular"});
  cases.push_back({"Det", {In({2, 7, 7})}});
  cases.push_back({"Det", {Fed({1, 2, 3, 2, 4, 6, 1, 0, 1}, {3, 3})}, {}, "", 1, "rank 2 of 3"});
  cases.push_back({"Det", {Fed({1, 2, 3, 2, 4, 6, 3, 6, 9}, {3, 3})}, {}, "", 1, "rank 1 of 3"});
  for (OpCase& op_case : cases) {
    // Rounding of an input changes a determinant by far more than one rounding of the result.
    if (op_case.op == "Det") op_case.half = false;
  }
  OpOperand a = Indices({2, 3}, -9, 9), b = Indices({3, 4}, 0, 9);
  a.dtype = DType::kInt8;
  b.dtype = DType::kUint8;
  cases.push_back({.op = "MatMulInteger", .operands = {a, b}, .gradient = false});
  cases.push_back({.op = "MatMul", .operands = {Indices({2, 3}, -9, 9), Indices({3, 4}, 0, 9)}, .note = "integers", .gradient = false});
  cases.push_back({.op = "Gemm",
                   .operands = {Indices({2, 3}, -9, 9), Indices({2, 4}, 0, 9)},
                   .attributes = {{"transA", kOne}},
                   .note = "integers",
                   .gradient = false});
  return cases;
}

}  // namespace gradloom

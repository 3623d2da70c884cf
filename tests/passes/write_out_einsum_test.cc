// An Einsum and the products, sums and transpositions that replace it train alike for any equation.
#include "compiler/passes/patterns/write_out_einsum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/plan/memory_report.h"
#include "tests/passes/small_training.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// Trains z, which `body` computes from x, on one device and two, with the pass and without it.
void ExpectAlike(const std::string& text, const Shape& x, std::mt19937& random, int64_t einsums_left, int64_t products) {
  const Model model = ModelOf(text);
  Shape batch = x;
  batch[0] = 6;
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, batch)}, {"target", Random(random, Shape{6})}});
  for (int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "target"}}, devices, {6});
    options.recipe.optimizer.type = "sgd";  // Adam would turn the rounding of a gradient that is nearly 0 into a step
    const Plan plan = Compile(model, options);
    EXPECT_EQ(Count(plan, "Einsum"), einsums_left);
    if (devices == 1 && products >= 0) {
      CompileOptions predict = options;
      predict.entries = {{EntryKind::kPredict, 6}};
      EXPECT_EQ(Count(Compile(model, predict), "MatMul"), products);
    }
    const auto written = Train(model, options, batches);
    if (devices == 2) continue;  // without the pass, few equations can be divided
    options.control.disabled = {"write_out_einsum"};
    ExpectNear(Train(model, options, batches), written, 1e-4);
  }
}

// Choosing the best of all pairs of 1000 operands would take minutes.
TEST(WriteOutEinsum, MultipliesManyOperandsInOrder) {
  std::string equation = "a", operands = "w";
  for (int i = 1; i < 1000; ++i) equation += ",a", operands += i == 500 ? ", x" : ", w";
  const Model model = ModelOf("g (float[4] x) => (float[4] z) <float[4] w = {1, 1, 1, 1}> { z = Einsum <equation = \"" + equation +
                              "->a\"> (" + operands + ") }");
  CompileOptions options = OptionsFor({{.type = "output", .output = "z"}}, 1, {4});
  options.entries = {{EntryKind::kPredict, 4}};
  EXPECT_EQ(Count(Compile(model, options), "Einsum"), 0);
}

struct Case {
  const char* equation;
  Shape x, w;
  int64_t products, left = 0;
};

TEST(WriteOutEinsum, KnownForms) {
  const Case cases[] = {
      {"bi,ij->bj", {1, 3}, {3, 4}, 1},
      {"ij,bi->bj", {1, 3}, {3, 4}, 1},
      {"bhid,hjd->bhij", {1, 2, 3, 4}, {2, 5, 4}, 1},
      {"bthd,hdo->bto", {1, 3, 2, 4}, {2, 4, 5}, 1},
      {"b...i,ij->b...j", {1, 2, 2, 3}, {3, 4}, 1},
      {"bij,ij->b", {1, 3, 4}, {3, 4}, 1},
      {"bi,j->bij", {1, 3}, {4}, 0},
      {"bij,ik->bk", {1, 3, 4}, {3, 5}, 1},   // j is summed first
      {"bij,kl->bi", {1, 3, 4}, {3, 5}, 0},   // all of w is summed
      {"bij,ik->kjb", {1, 3, 4}, {3, 5}, 1},  // samples last
      {"bij,ij", {1, 3, 4}, {3, 4}, 1},       // implicit output
      {"bii,ij->bj", {1, 3, 3}, {3, 4}, -1, 2},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.equation);
    std::mt19937 random(3);
    std::string extents;
    for (int axis = 1; axis < c.x.rank(); ++axis) extents += ", " + std::to_string(c.x[axis]);
    const bool last = std::string(c.equation).ends_with("kjb");
    const std::string w = std::string(c.equation).starts_with("ij,") ? "w, x" : "x, w";
    ExpectAlike("g (float[N" + extents + "] x) => (float[N] z)\n<" + Weights(random, "w", c.w) + ">\n{\n y = Einsum <equation = \"" +
                    c.equation + "\"> (" + w + ")\n" + (last ? " t = Transpose <perm = [2, 0, 1]> (y)\n" : " t = Identity (y)\n") +
                    " shape = Constant <value = int64[2] {0, -1}> ()\n f = Reshape (t, shape)\n"
                    " z = ReduceMean <keepdims = 0, axes = [1]> (f)\n}\n",
                c.x, random, c.left, c.products);
  }
}

// Random equations of two to four operands. The first operand has the samples, as its first axis.
TEST(WriteOutEinsum, RandomEquations) {
  std::mt19937 random(static_cast<uint32_t>(TestSeed()));
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 12; ++round) {
    const std::string letters = "bijkl";
    std::map<char, int64_t> extents = {{'b', 1}};
    for (char letter : letters.substr(1)) extents[letter] = 2 + draw(3);
    const int operands = 2 + draw(3);
    std::string equation, inputs, weights, used, head;
    Shape x;
    for (int i = 0; i < operands; ++i) {
      std::string term = i == 0 ? "b" : "";
      for (char letter : letters.substr(1)) {
        if (draw(2) == 0) term += letter;
      }
      if (i > 0 && term.empty()) term = "i";
      std::shuffle(term.begin() + (i == 0 ? 1 : 0), term.end(), random);
      Shape shape;
      for (char letter : term) shape.push_back(letter != 'b' && draw(6) == 0 ? 1 : extents[letter]);  // some broadcast
      if (i == 0) {
        x = shape;
        for (int axis = 1; axis < shape.rank(); ++axis) head += ", " + std::to_string(shape[axis]);
      } else {
        weights += (weights.empty() ? "" : ",\n") + Weights(random, "w" + std::to_string(i), shape);
      }
      equation += (i == 0 ? "" : ",") + term;
      inputs += i == 0 ? "x" : ", w" + std::to_string(i);
      used += term;
    }
    std::string output;
    for (char letter : letters.substr(1)) {
      if (used.find(letter) != std::string::npos && draw(2) == 0) output += letter;
    }
    std::shuffle(output.begin(), output.end(), random);
    equation += "->b" + output;
    std::cout << equation << " on x [N" << head << "], " << weights << std::endl;
    SCOPED_TRACE(equation + " on x [N" + head + "], " + weights);
    ExpectAlike("g (float[N" + head + "] x) => (float[N] z)\n<" + weights + ">\n{\n y = Einsum <equation = \"" + equation + "\"> (" +
                    inputs +
                    ")\n shape = Constant <value = int64[2] {0, -1}> ()\n f = Reshape (y, shape)\n"
                    " z = ReduceMean <keepdims = 0, axes = [1]> (f)\n}\n",
                x, random, 0, -1);
  }
}

// A mixture of experts in a single equation: evaluated from left to right, it would need an intermediate of 16 x 64 numbers per sample.
TEST(WriteOutEinsum, ChoosesTheOrderThatMovesLeast) {
  std::mt19937 random(3);
  const Model model =
      ModelOf("g (float[N, 16] x) => (float[N, 64] z)\n<" + Weights(random, "g", {16, 8}) + ",\n" + Weights(random, "w", {8, 16, 64}) +
              ">\n{\n gates = MatMul (x, g)\n z = Einsum <equation = \"bh,hde,bd->be\"> (gates, w, x)\n}\n");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "target"}}, 1, {6});
  options.entries = {{EntryKind::kPredict, 6}};
  const Plan plan = Compile(model, options);
  EXPECT_EQ(Count(plan, "MatMul"), 2);
  EXPECT_LT(ReportMemory(plan).programs.at(0).activations, 6 * 16 * 64 * 4);
}

}  // namespace
}  // namespace gradloom

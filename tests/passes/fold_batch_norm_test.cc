// A normalization with given statistics, made part of the convolution before it, gives the same predictions.
#include "compiler/passes/fold_batch_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Case {
  std::string name;
  std::string body;  // computes y [N, 8, 6, 6] from x [N, 8, 6, 6]
  bool folded = true;
};

const std::string kNorm = "BatchNormalization <training_mode = 1, epsilon = 0.01> (c, scale, offset, mean, var)\n";

const Case kCases[] = {
    {"without a bias", " c = Conv (x, w)\n y, m, v = " + kNorm},
    {"with a bias, and an activation", " c = Conv (x, w, b)\n n, m, v = " + kNorm + " y = Relu (n)\n"},
    {"windows and groups", " c = Conv <group = 4, pads = [1, 1, 1, 1]> (x, g, b)\n n, m, v = " + kNorm + " y = Add (n, x)\n"},
    {"one axis", " s = Reshape (x, flat)\n c = Conv (s, a, b)\n n, m, v = " + kNorm + " y = Reshape (n, square)\n"},
    {"another reader", " c = Conv (x, w, b)\n n, m, v = " + kNorm + " y = Add (n, c)\n", false},
    {"the user reads it", " out = Conv (x, w, b)\n c = Identity (out)\n n, m, v = " + kNorm + " y = Add (n, x)\n", false},
    {"weights of the input", " e = ReduceMean <keepdims = 0> (x)\n u = Mul (w, e)\n c = Conv (x, u)\n y, m, v = " + kNorm, false},
    {"no convolution", " c = Tanh (x)\n y, m, v = " + kNorm, false},
};

std::string Net(const Case& c, std::mt19937& random) {
  const bool out = c.body.find(" out =") != std::string::npos;
  return "net (float[N, 8, 6, 6] x) => (float[N, 2] z" + std::string(out ? ", float[N, 8, 6, 6] out" : "") + ")\n<" +
         Weights(random, "w", {8, 8, 1, 1}) + ",\n" + Weights(random, "g", {8, 2, 3, 3}) + ",\n" + Weights(random, "a", {8, 8, 1}) + ",\n" +
         Weights(random, "b", {8}) + ",\n" + Weights(random, "scale", {8}) + ",\n" + Weights(random, "offset", {8}) + ",\n" +
         Weights(random, "mean", {8}) + ",\n" + std::regex_replace(Weights(random, "var", {8}), std::regex("-"), "") + ",\n" +
         Weights(random, "p", {8, 2}) + ",\nint64[3] flat = {-1, 8, 36}, int64[4] square = {-1, 8, 6, 6}>\n{\n" + c.body +
         " r = ReduceMean <keepdims = 0, axes = [2, 3]> (y)\n z = MatMul (r, p)\n}\n";
}

// With a step that trains, so that the weights are states.
CompileOptions Options() {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {});
  options.entries = {{EntryKind::kPredict, 5}, {EntryKind::kStep, 5}};
  options.control.disabled = {"split_batch_norm"};
  return options;
}

// The normalizations in an entry.
int64_t Norms(const Plan& plan, size_t entry = 0) {
  const Program& program = plan.programs[static_cast<size_t>(plan.entries[entry].ranks[0].program)];
  return std::count_if(program.instructions.begin(), program.instructions.end(),
                       [](const Instruction& instruction) { return instruction.op.starts_with("BatchNorm"); });
}

TEST(FoldBatchNorm, KeepsPredictions) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(5);
    const Model model = ModelOf(Net(c, random));
    const Batch batch{{"x", Random(random, Shape{5, 8, 6, 6})}};
    CompileOptions options = Options();
    const auto plan = std::make_shared<const Plan>(Compile(model, options));
    EXPECT_EQ(Norms(*plan), c.folded ? 0 : 1);
    options.control.disabled.emplace_back("fold_batch_norm");
    const auto apart = std::make_shared<const Plan>(Compile(model, options));
    EXPECT_EQ(Norms(*apart), 1);
    Session folded(plan), other(apart);
    for (int run = 0; run < 2; ++run) ExpectNear(other.Predict(Views(batch)), folded.Predict(Views(batch)), 1e-5);
    // It follows the statistics.
    for (const char* const state : {"mean", "var", "scale", "offset"}) {
      Tensor value = folded.Get(state);
      for (float& element : value.as<float>()) element = element * 1.5F + 0.25F;
      folded.Set(state, value.view()), other.Set(state, value.view());
      ExpectNear(other.Predict(Views(batch)), folded.Predict(Views(batch)), 1e-5);
    }
    // Not in a step that trains, and not if it would be computed in every run, since memory is limited.
    EXPECT_GE(Norms(*plan, 1), 1);
    CompileOptions limited = Options();
    limited.recipe.memory_limit = int64_t{1} << 30;
    EXPECT_EQ(Norms(Compile(model, limited)), 1);
  }
}

}  // namespace
}  // namespace gradloom

// A batch normalization that is recomputed by its readers gives the same results as one whose result is stored.
#include "compiler/passes/fusion/split_batch_norm.h"

#include <gtest/gtest.h>

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
  std::string body;  // computes y from n, the normalized [N, 8, 6, 6], and h, the input of the normalization
  bool split = true;
  bool saves = false;  // whether the split saves memory
};

const Case kCases[] = {
    {"an activation", " y = Relu (n)\n"},
    {"a clipped one, whose gradient asks for what was clipped", " y = Clip (n, zero, six)\n", true, true},
    {"one whose gradient reads it twice", " s = Sigmoid (n)\n y = Mul (n, s)\n", true, true},
    {"a sum beside it", " t = Add (n, h)\n y = Relu (t)\n"},
    {"two readers", " a = Relu (n)\n b = Tanh (n)\n y = Add (a, b)\n"},
    {"a convolution reads it", " y = Conv <kernel_shape = [1, 1]> (n, k)\n", false},
    {"a convolution reads it, too", " a = Relu (n)\n b = Conv <kernel_shape = [1, 1]> (n, k)\n y = Add (a, b)\n", false},
    {"the user reads it", " y = Relu (n)\n out = Identity (n)\n", false},
};

// A convolution, its normalization and the body. The names of all values end in _`layer`.
std::string Layer(const Case& c, const std::string& x, const std::string& weight, const std::string& layer) {
  const std::string text = " h = Conv <kernel_shape = [1, 1]> (" + x + ", " + weight +
                           ")\n n, m, v = BatchNormalization <training_mode = 1> (h, scale, bias, mean, var)\n" + c.body;
  return std::regex_replace(text, std::regex("\\b([abhmnstvy])\\b"), "$1_" + layer);
}

std::string Net(const Case& c, std::mt19937& random) {
  const bool out = c.body.find("out =") != std::string::npos;
  return "g (float[N, 8, 6, 6] x) => (float[N, 2] z" + std::string(out ? ", float[N, 8, 6, 6] out" : "") + ")\n<" +
         Weights(random, "w", {8, 8, 1, 1}) + ",\n" + Weights(random, "k", {8, 8, 1, 1}) + ",\n" + Weights(random, "scale", {8}) + ",\n" +
         Weights(random, "bias", {8}) + ",\n" + Weights(random, "u", {8, 2}) +
         ",\nfloat[8] mean = {0, 1, 0, -2, 0, 0, 0.5, 0}, float[8] var = {1, 1, 4, 1, 0.25, 1, 1, 1}, float zero = {0}, float six = "
         "{0.6}>\n{\n" +
         (out ? "" : Layer(c, "x", "w", "1")) + Layer(c, out ? "x" : "y_1", "k", "2") +
         " p = GlobalAveragePool (y_2)\n f = Flatten (p)\n z = MatMul (f, u)\n}\n";
}

TEST(SplitBatchNorm, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(5);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{16, 8, 6, 6})}, {"target", Classes(random, 16, 2)}});
    for (int devices : {1, 2}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {16});
      // Adam would turn the rounding error of a nearly zero gradient into a full step.
      options.recipe.optimizer.type = "sgd";
      options.recipe.fetch_outputs = c.body.find("out =") != std::string::npos;
      const Plan plan = Compile(model, options);
      const auto split = Train(model, options, batches);
      options.control.disabled = {"split_batch_norm"};
      const Plan whole = Compile(model, options);
      ExpectNear(Train(model, options, batches), split, 1e-4);
      // On two devices the statistics cover both, and are computed by separate operators.
      if (devices > 1) continue;
      const int64_t layers = options.recipe.fetch_outputs ? 1 : 2;
      EXPECT_EQ(Count(plan, "BatchNormLine"), c.split ? layers : 0);
      EXPECT_EQ(Count(plan, "BatchNormTrain"), c.split ? 0 : layers);
      if (c.saves) {
        EXPECT_LT(plan.programs.at(0).transient_bytes, whole.programs.at(0).transient_bytes);
      } else {
        EXPECT_LE(plan.programs.at(0).transient_bytes, whole.programs.at(0).transient_bytes + 1024);
      }
    }
  }
}

// With the running statistics.
TEST(SplitBatchNorm, KeepsPredictions) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(5);
    const Model model = ModelOf(Net(c, random));
    const Batch batch{{"x", Random(random, Shape{16, 8, 6, 6})}};
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {16});
    options.entries = {{EntryKind::kPredict, 16}};
    const auto plan = std::make_shared<const Plan>(Compile(model, options));
    const auto split = Session(plan).Predict(Views(batch));
    options.control.disabled = {"split_batch_norm"};
    ExpectNear(Session(std::make_shared<const Plan>(Compile(model, options))).Predict(Views(batch)), split, 1e-5);
    const int64_t layers = c.body.find("out =") != std::string::npos ? 1 : 2;
    EXPECT_EQ(Count(*plan, "BatchNormalization"), c.split ? 0 : layers);
  }
}

}  // namespace
}  // namespace gradloom

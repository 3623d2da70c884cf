// Gradients of zeros and the absence of gradients, which weight decay and momentum distinguish.
#include "compiler/passes/gradient/differentiate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int kBatches = 3;
constexpr double kLr = 0.05, kDecay = 0.2;

// Every weight but `w` is before a step function: one each, two in a row, and a whole layer. `cut` is compared, which has no gradient, and
// `idle` only scales an output that the loss does not read.
Model StepNet(std::mt19937& random) {
  std::string weights;
  for (const char* name : {"rounded", "signed", "lowered", "raised", "twice", "cut", "idle"})
    weights += ", " + Weights(random, name, Shape{3}, 3.0F);
  return ModelOf("net (float[N, 4] x) => (float[N, 3] y, float[N, 3] other) <" + Weights(random, "w", Shape{4, 3}) + ", " +
                 Weights(random, "before", Shape{4, 3}) + weights + R"(> {
  h = MatMul(x, w)
  r = Round(rounded)
  s = Sign(signed)
  f = Floor(lowered)
  c = Ceil(raised)
  n = Neg(twice)
  n1 = Floor(n)
  n2 = Exp(n1)
  n3 = Sign(n2)
  g = Greater(h, cut)
  g1 = Cast <to = 1> (g)
  m = MatMul(x, before)
  m1 = Round(m)
  y = Sum(h, r, s, f, c, n3, g1, m1)
  other = Mul(h, idle)
})");
}

void ExpectDecay(const std::string& optimizer, int devices) {
  SCOPED_TRACE(optimizer + " on " + std::to_string(devices) + " devices");
  std::mt19937 random(5);
  const Model model = StepNet(random);
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "target"}}, devices, {6});
  options.recipe.optimizer.type = optimizer;
  options.recipe.optimizer.weight_decay = kDecay;
  options.recipe.trainable = {"w", "before", "rounded", "signed", "lowered", "raised", "twice", "cut", "idle"};
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back({{"x", Random(random, Shape{6, 4})}, {"target", Random(random, Shape{6, 3})}});
  const auto trained = Train(model, options, batches);
  options.recipe.schedule.lr = options.recipe.optimizer.lr = 0;
  const auto initial = Train(model, options, batches);
  for (const std::string name : {"before", "rounded", "signed", "lowered", "raised", "twice"}) {
    ASSERT_TRUE(trained.contains("grad/" + name + "@0")) << name;
    const Tensor &from = initial.at(name), &to = trained.at(name), &gradient = trained.at("grad/" + name + "@0");
    for (int64_t i = 0; i < from.elements(); ++i) {
      EXPECT_EQ(ElementAsDouble(gradient.view(), i), 0) << name;
      EXPECT_NEAR(ElementAsDouble(to.view(), i), ElementAsDouble(from.view(), i) * std::pow(1 - kLr * kDecay, kBatches), 1e-6) << name;
    }
  }
  for (const std::string name : {"cut", "idle"}) {
    EXPECT_FALSE(trained.contains("grad/" + name + "@0")) << name;
    ExpectSameBits({{name, Tensor::Copy(initial.at(name).view())}}, {{name, Tensor::Copy(trained.at(name).view())}});
  }
}

TEST(Differentiate, WeightsBeforeStepFunctionsDecay) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (int devices : {1, 2}) ExpectDecay(optimizer, devices);
  }
}

}  // namespace
}  // namespace gradloom

// Parameters of float64 are updated with hyperparameters of float64, as PyTorch does, which computes with Python's doubles.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/plan/plan.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int kSteps = 5;
constexpr size_t kSamples = 4, kFeatures = 3;
constexpr double kRate = 0.01;
using Weight = std::array<double, kFeatures>;

double X(int step, size_t sample, size_t feature) {
  return std::sin(static_cast<double>(step) + 1.3 * static_cast<double>(sample) + 0.7 * static_cast<double>(feature));
}
double T(int step, size_t sample) { return std::cos(static_cast<double>(step) - 0.9 * static_cast<double>(sample)); }

// The gradient of the mean of (x w - t)^2.
Weight GradientAt(int step, const Weight& w) {
  Weight gradient{};
  for (size_t n = 0; n < kSamples; ++n) {
    double y = 0;
    for (size_t k = 0; k < kFeatures; ++k) y += X(step, n, k) * w[k];
    for (size_t k = 0; k < kFeatures; ++k) gradient[k] += 2 * (y - T(step, n)) * X(step, n, k) / static_cast<double>(kSamples);
  }
  return gradient;
}

// The weight after training with these options.
Weight Trained(const OptimizerOptions& optimizer) {
  const Model model = ModelOf(
      "m (double[N,3] x) => (double[N,1] y) <double[3,1] w = {0.3, -0.2, 0.1}> {\n"
      "  y = MatMul(x, w)\n"
      "}");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {kSamples});
  options.recipe.optimizer = optimizer;
  options.recipe.schedule.lr = optimizer.lr;
  std::vector<Batch> batches;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> x, t;
    for (size_t n = 0; n < kSamples; ++n) {
      for (size_t k = 0; k < kFeatures; ++k) x.push_back(X(step, n, k));
      t.push_back(T(step, n));
    }
    batches.push_back({{"x", Tensor::From(x, Shape{kSamples, kFeatures})}, {"t", Tensor::From(t, Shape{kSamples, 1})}});
  }
  const std::map<std::string, Tensor> results = Train(model, options, batches);
  Weight w;
  for (size_t k = 0; k < kFeatures; ++k) w[k] = results.at("w").as<double>()[k];
  return w;
}

void ExpectEqual(const Weight& made, const Weight& wanted) {
  for (size_t k = 0; k < kFeatures; ++k) EXPECT_NEAR(made[k], wanted[k], 1e-14 * std::fabs(wanted[k])) << k;
}

TEST(Float64Updates, Sgd) {
  const double momentum = 0.9, decay = 0.003;
  Weight w{0.3, -0.2, 0.1}, buffer{};
  for (int step = 0; step < kSteps; ++step) {
    const Weight gradient = GradientAt(step, w);
    for (size_t k = 0; k < kFeatures; ++k) {
      const double g = gradient[k] + decay * w[k];
      buffer[k] = step == 0 ? g : momentum * buffer[k] + g;
      w[k] -= kRate * buffer[k];
    }
  }
  ExpectEqual(Trained({.type = "sgd", .lr = kRate, .weight_decay = decay, .momentum = momentum}), w);
}

TEST(Float64Updates, AdamW) {
  const double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.01;
  Weight w{0.3, -0.2, 0.1}, mean{}, square{};
  for (int step = 0; step < kSteps; ++step) {
    const Weight gradient = GradientAt(step, w);
    for (size_t k = 0; k < kFeatures; ++k) {
      const double g = gradient[k];
      w[k] *= 1 - kRate * decay;
      mean[k] += (1 - beta1) * (g - mean[k]);
      square[k] = beta2 * square[k] + (1 - beta2) * g * g;
      const double correction1 = 1 - std::pow(beta1, step + 1), correction2 = 1 - std::pow(beta2, step + 1);
      w[k] -= kRate / correction1 * mean[k] / (std::sqrt(square[k]) / std::sqrt(correction2) + eps);
    }
  }
  ExpectEqual(Trained({.type = "adamw", .lr = kRate, .weight_decay = decay}), w);
}

// A model with parameters of both types has the rate in both.
TEST(Float64Updates, EachTypeHasItsRate) {
  const Model model = ModelOf(
      "m (float[N,3] x) => (double[N,1] y) <float[3,2] v = {0.3, -0.2, 0.1, 0.4, -0.1, 0.2}, double[2,1] w = {0.5, -0.5}> {\n"
      "  h = MatMul(x, v)\n"
      "  wide = Cast<to = 11>(h)\n"
      "  y = MatMul(wide, w)\n"
      "}");
  const CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {2});
  const Plan plan = Compile(model, options);
  EXPECT_GE(plan.step.lr, 0);
  EXPECT_GE(plan.step.lr64, 0);
  EXPECT_NE(plan.step.lr, plan.step.lr64);
}

}  // namespace
}  // namespace gradloom

// Losses that PyTorch computes with softplus, and exporters write with a logarithm, are finite and have exact gradients.
#include "compiler/passes/patterns/fuse_softplus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

double Softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double Sigmoid(double x) { return x > 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

struct Case {
  std::string body;  // computes y from z [N, 8]
  std::function<double(double)> function, slope;
  double tolerance = 1e-12;  // absolute, besides the relative one
};

constexpr float kPlaces[] = {-300, -95, -20, -1, 0.5, 20, 95, 300};

const auto kLogSigmoid = [](double x) { return -Softplus(-x); };
const auto kSlopeOfLogSigmoid = [](double x) { return Sigmoid(-x); };
const auto kLogRest = [](double x) { return -Softplus(x); };
const auto kSlopeOfLogRest = [](double x) { return -Sigmoid(x); };

const Case kCases[] = {
    {"s = Sigmoid (z)\n y = Log (s)\n", kLogSigmoid, kSlopeOfLogSigmoid},
    {"s = Sigmoid (z)\n one = Constant <value = float {1}> ()\n r = Sub (one, s)\n y = Log (r)\n", kLogRest, kSlopeOfLogRest},
    {"e = Exp (z)\n one = Constant <value = float {1}> ()\n r = Add (one, e)\n y = Log (r)\n", Softplus, Sigmoid},
    {"e = Exp (z)\n one = Constant <value = float[1] {1}> ()\n r = Add (e, one)\n y = Log (r)\n", Softplus, Sigmoid},
    // log1p of a negated sigmoid.
    {"s = Sigmoid (z)\n n = Neg (s)\n one = Constant <value = float {1}> ()\n r = Add (n, one)\n y = Log (r)\n", kLogRest, kSlopeOfLogRest},
    // logaddexp(z, -z).
    {"n = Neg (z)\n e = Exp (z)\n f = Exp (n)\n r = Add (e, f)\n y = Log (r)\n",
     [](double x) { return std::abs(x) + std::log1p(std::exp(-2 * std::abs(x))); }, [](double x) { return std::tanh(x); }, 1e-6},
    // Binary cross entropy with the target 1: both halves, of which one is multiplied by 0.
    {"s = Sigmoid (z)\n one = Constant <value = float {1}> ()\n zero = Constant <value = float {0}> ()\n r = Sub (one, s)\n a = Log (s)\n"
     "b = Log (r)\n c = Mul (b, zero)\n y = Add (a, c)\n",
     kLogSigmoid, kSlopeOfLogSigmoid},
    // Other functions, which round 1 + exp(-20) to 1.
    {"s = Sigmoid (z)\n two = Constant <value = float {2}> ()\n r = Sub (two, s)\n y = Log (r)\n",
     [](double x) { return std::log(2 - Sigmoid(x)); }, [](double x) { return -Sigmoid(x) * Sigmoid(-x) / (2 - Sigmoid(x)); }, 1e-8},
    {"t = Tanh (z)\n e = Exp (t)\n two = Constant <value = float {2}> ()\n r = Add (e, two)\n y = Log (r)\n",
     [](double x) { return std::log(2 + std::exp(std::tanh(x))); },
     [](double x) { return std::exp(std::tanh(x)) / (2 + std::exp(std::tanh(x))) * (1 - std::tanh(x) * std::tanh(x)); }, 1e-8},
};

TEST(FuseSoftplus, ValuesAndGradients) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.body);
    const Model model =
        ModelOf("g (float[N, 8] x) => (float[N, 8] y)\n<float[8] w = {1, 1, 1, 1, 1, 1, 1, 1}>\n{ z = Mul (x, w)\n" + c.body + "}\n");
    CompileOptions options = OptionsFor({{.type = "output", .output = "y"}}, 1, {1});
    options.recipe.optimizer.type = "sgd";
    const auto made =
        Train(model, options, {{{"x", Tensor::From(std::vector<float>(std::begin(kPlaces), std::end(kPlaces)), Shape{1, 8})}}});
    const auto element = [&](const std::string& name, int i) { return ElementAsDouble(made.at(name).view(), i); };
    for (int i = 0; i < 8; ++i) {
      const double x = kPlaces[i], y = c.function(x), slope = c.slope(x) * x / 8;
      EXPECT_NEAR(element("y@0", i), y, 2e-6 * std::abs(y) + c.tolerance) << x;
      EXPECT_NEAR(element("grad/w@0", i), slope, 4e-6 * std::abs(slope) + c.tolerance) << x;
    }
  }
}

// A constant that is larger than x makes the result larger.
TEST(FuseSoftplus, KeepsBroadcasts) {
  const Model model = ModelOf(
      "g (float[N, 2] x) => (float[N, 2, 2] y)\n<float[2] w = {1, 1}>\n{ z = Mul (x, w)\n e = Exp (z)\n"
      "one = Constant <value = float[1, 2, 1] {1, 1}> ()\n r = Add (e, one)\n y = Log (r) }\n");
  CompileOptions options = OptionsFor({{.type = "output", .output = "y"}}, 1, {1});
  const auto made = Train(model, options, {{{"x", Tensor::From<float>({1, -2}, Shape{1, 2})}}});
  ASSERT_EQ(made.at("y@0").shape(), (Shape{1, 2, 2}));
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(ElementAsDouble(made.at("y@0").view(), i), Softplus(i % 2 == 0 ? 1 : -2), 1e-6);
}

}  // namespace
}  // namespace gradloom

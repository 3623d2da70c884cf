#include "compiler/passes/gradient/surrogates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr float kRate = 0.125F;

std::shared_ptr<const Plan> PlanOf(const std::string& graph, std::vector<Surrogate> surrogates, CompileReport* report = nullptr) {
  CompileOptions options;
  options.recipe.losses = {{.type = "output", .output = "y", .reduction = "sum"}};
  options.recipe.optimizer.type = "sgd";
  options.recipe.schedule.lr = options.recipe.optimizer.lr = kRate;
  options.recipe.surrogates = std::move(surrogates);
  options.entries = {{EntryKind::kStep, 1}, {EntryKind::kPredict, 1}};
  return std::make_shared<const Plan>(Compile(Model::FromText("<ir_version: 10, opset_import: [\"\" : 20]>\n" + graph), options, report));
}

// The gradient of w, whose elements are multiplied by ones, compared with a threshold of 0.5 by `step`, and summed with the factors 1
// and 3.
std::vector<float> GradientOf(const std::string& step, const Surrogate& surrogate, const std::vector<float>& values = {1, 0}) {
  Session session(
      PlanOf("g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.75, 0.25}, float[2] v = {1, 3}, float half = {0.5}, "
             "float zero = {0}, float two = {2}, float five = {5}> { h = Mul (x, w) " +
                 step + " y = Mul (s, v) }",
             {surrogate}));
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2});
  // The values are those of the step, exactly.
  const Tensor y = session.Predict({{"x", x.view()}}).at("y");
  EXPECT_EQ(y.as<float>()[0], values[0]);
  EXPECT_EQ(y.as<float>()[1], 3 * values[1]);
  session.Step({{"x", x.view()}});
  const Tensor w = session.Get("w");
  return {(0.75F - w.as<float>()[0]) / kRate, (0.25F - w.as<float>()[1]) / kRate};
}

void ExpectGradient(const std::string& step, const Surrogate& surrogate, double first, double second,
                    const std::vector<float>& values = {1, 0}) {
  SCOPED_TRACE(step);
  const std::vector<float> gradient = GradientOf(step, surrogate, values);
  EXPECT_NEAR(gradient[0], first, 1e-5);
  EXPECT_NEAR(gradient[1], 3 * second, 1e-5);
}

TEST(Surrogates, AreTheDerivativesOfSteps) {
  const std::string step = "c = Greater (h, half) s = Cast <to = 1> (c)";
  // At 0.25 and -0.25 from the step.
  const double atan = 2.0 / 2 / (1 + std::pow(std::numbers::pi / 2 * 2 * 0.25, 2));
  ExpectGradient(step, {.kind = SurrogateKind::kAtan, .slope = 2}, atan, atan);
  const double fast = 1 / std::pow(1 + 25 * 0.25, 2);
  ExpectGradient(step, {.kind = SurrogateKind::kFastSigmoid, .slope = 25}, fast, fast);
  const double sigmoid = 1 / (1 + std::exp(-4 * 0.25)), slope = 4 * sigmoid * (1 - sigmoid);
  ExpectGradient(step, {.kind = SurrogateKind::kSigmoid, .slope = 4}, slope, slope);
  ExpectGradient(step, {.kind = SurrogateKind::kStraightThrough}, 1, 1);
}

TEST(Surrogates, FormsOfSteps) {
  const Surrogate through{.kind = SurrogateKind::kStraightThrough}, atan{.kind = SurrogateKind::kAtan, .slope = 4};
  const double near = 2 / (1 + std::pow(std::numbers::pi / 2, 2));
  ExpectGradient("d = Sub (h, half) c = GreaterOrEqual (d, zero) s = Cast <to = 1> (c)", atan, near, near);
  ExpectGradient("c = Less (half, h) s = Cast <to = 1> (c)", atan, near, near);
  ExpectGradient("c = LessOrEqual (h, half) s = Cast <to = 1> (c)", atan, -near, -near, {0, 1});
  ExpectGradient("c = Greater (h, half) i = Cast <to = 7> (c) s = Cast <to = 1> (i)", atan, near, near);
  ExpectGradient("c = Greater (h, half) s = Where (c, five, two)", atan, 3 * near, 3 * near, {5, 2});
  ExpectGradient("r = Round (h) s = Identity (r)", through, 1, 1);
  ExpectGradient("d = Sub (h, half) s = Sign (d)", through, 1, 1, {1, -1});
}

// One surrogate for the steps of a name, another for the rest; the first that matches counts. A weight behind a step without one is not
// trained.
TEST(Surrogates, AreChosenByName) {
  const std::string graph =
      "g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.75, 0.25}, float[2] v = {0.75, 0.25}, float half = {0.5}> { h = Mul (x, w) k "
      "= Mul (x, v) c = Greater (h, half) d = Greater (k, half) [first] s = Cast <to = 1> (c) [second] t = Cast <to = 1> (d) y = Add (s, "
      "t) }";
  const Surrogate through{.kind = SurrogateKind::kStraightThrough, .slope = 1, .pattern = "fir*"};
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2});
  {
    Session session(PlanOf(graph, {through, {.kind = SurrogateKind::kFastSigmoid, .slope = 4, .pattern = "t"}}));
    session.Step({{"x", x.view()}});
    EXPECT_NEAR(session.Get("w").as<float>()[0], 0.75F - kRate, 1e-6);
    EXPECT_NEAR(session.Get("v").as<float>()[0], 0.75F - kRate / 4, 1e-6);
  }
  CompileReport report;
  const auto plan = PlanOf(graph, {through}, &report);
  ASSERT_EQ(report.trained.size(), 1U);
  EXPECT_EQ(report.trained[0].name, "w");
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("1 weight is not trained (v)"), std::string::npos) << report.warnings[0];

  for (const char* pattern : {"third", "x"}) {
    try {
      PlanOf(graph, {{.pattern = pattern}});
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(error.help().find("the model has: s, t"), std::string::npos) << error.help();
    }
  }
}

TEST(Surrogates, WeightsBehindStepsAreNamed) {
  const auto warnings = [](const std::string& nodes) {
    CompileReport report;
    PlanOf(
        "g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.75, 0.25}, float[2] b = {0, 1}, float[2] v = {1, 3}, float half = {0.5}> "
        "{ " +
            nodes + " }",
        {}, &report);
    return report.warnings;
  };
  const std::vector<std::string> step =
      warnings("a = Mul (x, w) h = Add (a, b) c = Greater (h, half) s = Cast <to = 1> (c) y = Mul (s, v)");
  ASSERT_EQ(step.size(), 1U);
  EXPECT_NE(step[0].find("2 weights are not trained (w, b): they reach the outputs only through steps such as 's', which pass no gradient"),
            std::string::npos)
      << step[0];
  EXPECT_EQ(warnings("h = Mul (x, w) r = Sign (h) y = Mul (r, v)").size(), 1U);
  // A gate of what it multiplies, a step of an input, a bound, and a choice.
  EXPECT_EQ(warnings("c = Greater (x, w) s = Cast <to = 1> (c) y = Mul (s, v)").size(), 0U);
  EXPECT_EQ(warnings("h = Mul (x, w) c = Greater (h, half) s = Cast <to = 1> (c) y = Mul (s, h)").size(), 0U);
  EXPECT_EQ(warnings("c = Greater (x, half) s = Cast <to = 1> (c) y = Mul (s, v)").size(), 0U);
  EXPECT_EQ(warnings("h = Mul (x, w) c = Greater (h, half) y = Where (c, h, v)").size(), 0U);
}

TEST(Surrogates, InABranch) {
  Session session(PlanOf(R"(
g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.75, 0.25}, float half = {0.5}, float none = {0}>
{
  h = Mul (x, w)
  u = ReduceSum <keepdims = 0> (x)
  c = Greater (u, none)
  y = If (c) <
    then_branch = t () => (float[N, 2] p) { a = Greater (h, half) p = Cast <to = 1> (a) },
    else_branch = e () => (float[N, 2] n) { n = Neg (h) }>
})",
                         {{.kind = SurrogateKind::kStraightThrough}}));
  const Tensor x = Tensor::From<float>({1, 1}, Shape{1, 2});
  session.Step({{"x", x.view()}});
  EXPECT_NEAR(session.Get("w").as<float>()[0], 0.75F - kRate, 1e-6);
}

}  // namespace
}  // namespace gradloom

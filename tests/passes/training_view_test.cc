#include "compiler/passes/training_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr double kRate = 0.125;

std::shared_ptr<const Plan> PlanOf(const std::string& graph, int64_t batch) {
  CompileOptions options;
  options.recipe.losses = {{.type = "output", .output = "y"}};
  options.recipe.optimizer.type = "sgd";
  options.recipe.schedule.lr = options.recipe.optimizer.lr = kRate;
  options.entries = {{EntryKind::kStep, batch}, {EntryKind::kPredict, batch}};
  return std::make_shared<const Plan>(Compile(Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph), options));
}

// One normalization applied to two values, like a module that is called twice: both batches update the statistics, in order.
TEST(TrainingView, SharedStatisticsAreUpdatedByEachUse) {
  Session session(PlanOf(R"(
g (float[N, 1] x) => (float[N, 1] y) <float[1] s = {1}, float[1] b = {0}, float[1] m = {8}, float[1] v = {1}, float[1] one = {1}>
{
  first = BatchNormalization <momentum = 0.5> (x, s, b, m, v)
  moved = Add (x, one)
  second = BatchNormalization <momentum = 0.5> (moved, s, b, m, v)
  y = Add (first, second)
})",
                         2));
  const Tensor x = Tensor::From<float>({1, 3}, Shape{2, 1});
  session.Step({{"x", x.view()}});
  // Means 2 and 3, variances 1 and 1.
  EXPECT_FLOAT_EQ(session.Get("m").as<float>()[0], 0.5f * (0.5f * 8 + 0.5f * 2) + 0.5f * 3);
  EXPECT_FLOAT_EQ(session.Get("v").as<float>()[0], 1);
}

TEST(TrainingView, WarnsOfStatisticsOfOneValue) {
  const auto warnings = [](int64_t batch, int devices, bool sync_bn, GraphMode mode = GraphMode::kTrain) {
    CompileOptions options;
    options.recipe.losses = {{.type = "output", .output = "y"}};
    options.recipe.optimizer.type = "sgd";
    options.recipe.devices = devices;
    options.recipe.sync_bn = sync_bn;
    options.recipe.mode = mode;
    options.entries = {{EntryKind::kStep, 4}, {EntryKind::kStep, batch}, {EntryKind::kEval, batch}};
    CompileReport report;
    Compile(Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n"
                            "g (float[N, 2] x) => (float[N, 2] y) <float[2] s = {1, 1}, float[2] m = {0, 0}, float[2] v = {1, 1}>\n"
                            "{ h = Mul (x, s)  y = BatchNormalization (h, s, m, m, v) }"),
            options, &report);
    return report.warnings;
  };
  ASSERT_EQ(warnings(1, 1, false).size(), 1u);
  EXPECT_NE(warnings(1, 1, false)[0].find("in batches of 1, '"), std::string::npos) << warnings(1, 1, false)[0];
  ASSERT_EQ(warnings(2, 2, false).size(), 1u);
  EXPECT_NE(warnings(2, 2, false)[0].find("in batches of 2 on 2 devices, '"), std::string::npos) << warnings(2, 2, false)[0];
  EXPECT_TRUE(warnings(2, 1, false).empty());
  EXPECT_TRUE(warnings(2, 2, true).empty());
  EXPECT_TRUE(warnings(1, 1, false, GraphMode::kGraph).empty());
}

// Statistics are not taken for states of the optimizer of a parameter whose name begins theirs.
TEST(TrainingView, StatisticsNamedAfterAParameter) {
  const std::shared_ptr<const Plan> plan = PlanOf(R"(
g (float[N, 1] x) => (float[N, 1] y)
<float[1] "bn" = {1}, float[1] "bn/bias" = {0}, float[1] "bn/mean" = {8}, float[1] "bn/grad_sum" = {4}>
{
  y = BatchNormalization <momentum = 0.5, epsilon = 0.0> (x, "bn", "bn/bias", "bn/mean", "bn/grad_sum")
})",
                                                  2);
  for (const StateTensor& state : plan->state) {
    const bool parameter = state.name == "bn" || state.name == "bn/bias";
    EXPECT_EQ(state.kind, parameter ? StateKind::kParameter : StateKind::kStatistic) << state.name;
  }
  Session session(plan);
  const Tensor x = Tensor::From<float>({1, 3}, Shape{2, 1});
  session.Step({{"x", x.view()}});
  // Mean 2, variance 1.
  EXPECT_FLOAT_EQ(session.Get("bn/mean").as<float>()[0], 5);
  EXPECT_FLOAT_EQ(session.Get("bn/grad_sum").as<float>()[0], 2.5);
  const Tensor at = Tensor::From<float>({5, 5}, Shape{2, 1});
  EXPECT_FLOAT_EQ(session.Predict({{"x", at.view()}}).at("y").as<float>()[0], session.Get("bn/bias").as<float>()[0]);
}

// If nothing is trained, a node in training form outputs the stored statistics.
TEST(TrainingView, StatisticsAreReadableWithoutTraining) {
  Session session(PlanOf(R"(
g (float[N, 1] x) => (float[N, 1] y, float[1] mean) <float[1] s = {1}, float[1] b = {0}, float[1] m = {8}, float[1] v = {4}>
{
  h, mean, variance = BatchNormalization <training_mode = 1, epsilon = 0.0> (x, s, b, m, v)
  y = Mul (h, variance)
})",
                         2));
  const Tensor x = Tensor::From<float>({8, 10}, Shape{2, 1});
  const auto outputs = session.Predict({{"x", x.view()}});
  EXPECT_EQ(outputs.at("mean").as<float>()[0], 8);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[0], 0);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[1], 4);
}

// Values that are quantized and immediately dequantized: the forward value is rounded, and gradients pass as if it were not, where the
// integers are in range. The scale is not a weight.
TEST(FakeQuantize, GradientsPassStraightThrough) {
  const std::shared_ptr<const Plan> plan = PlanOf(R"(
g (float[N, 3] x) => (float[N, 3] y)
<float[3] w = {0.33, 20, -3}, float[3, 3] v = {1, 2, 0, 0, 1, 0, 0, 3, 1}, float[1] step = {0.1}, uint8[1] zero = {10},
 float[3] scales = {0.5, 0.25, 1}, int8[3] zeros = {0, 0, 0}>
{
  h = Mul (x, w)
  q = QuantizeLinear (h, step, zero)
  d = DequantizeLinear (q, step, zero)
  p = QuantizeLinear <axis = 0> (v, scales, zeros)
  e = DequantizeLinear <axis = 0> (p, scales, zeros)
  y = MatMul (d, e)
})",
                                                  1);
  Session session(plan);
  for (const StateTensor& state : plan->state) EXPECT_TRUE(state.name == "w" || state.name == "v") << state.name;
  const Tensor x = Tensor::From<float>({1, 2, 1}, Shape{1, 3});
  // 0.33 becomes 13, which is 3 with the zero point of 10; 40 is clipped to 255, which is 245; -3 would be -20 and is clipped to 0.
  const auto outputs = session.Predict({{"x", x.view()}});
  const auto& y = outputs.at("y");
  const float d[] = {0.3f, 24.5f, -1.0f};
  EXPECT_FLOAT_EQ(y.as<float>()[0], d[0]);
  EXPECT_FLOAT_EQ(y.as<float>()[1], 2 * d[0] + d[1] + 3 * d[2]);
  EXPECT_FLOAT_EQ(y.as<float>()[2], d[2]);
  session.Step({{"x", x.view()}});
  const float lr = static_cast<float>(kRate);
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[0], 0.33f - lr * 3 / 3);
  EXPECT_EQ(session.Get("w").as<float>()[1], 20);
  EXPECT_EQ(session.Get("w").as<float>()[2], -3);
  for (size_t i = 0; i < 9; ++i) {
    const float begun[] = {1, 2, 0, 0, 1, 0, 0, 3, 1};
    EXPECT_FLOAT_EQ(session.Get("v").as<float>()[i], begun[i] - lr * d[i / 3] / 3) << i;
  }
}

// torch.fake_quantize_* with the range 0 to 127 has a Clip between the two nodes. A quantized value may also have two readers.
TEST(FakeQuantize, SevenBitsAndTwoReaders) {
  Session session(PlanOf(R"(
g (float[N, 3] x) => (float[N, 3] y)
<float[3] w = {0.33, 9, -3}, float step = {0.1}, uint8 zero = {60}, uint8 low = {0}, uint8 high = {127}>
{
  h = Mul (x, w)
  q = QuantizeLinear (h, step, zero)
  c = Clip (q, low, high)
  d = DequantizeLinear (c, step, zero)
  e = DequantizeLinear (q, step, zero)
  y = Add (d, e)
})",
                         1));
  const Tensor x = Tensor::From<float>({1, 1, 1}, Shape{1, 3});
  // 9 becomes 150: in the range of eight bits, but not of seven.
  const auto outputs = session.Predict({{"x", x.view()}});
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[0], 0.6f);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[1], 6.7f + 9);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[2], -6);
  session.Step({{"x", x.view()}});
  const float lr = static_cast<float>(kRate);
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[0], 0.33f - 2 * lr / 3);
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[1], 9 - lr / 3);
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[2], -3 - 2 * lr / 3);
}

// Within a branch that the data of a step chooses.
TEST(FakeQuantize, InABranch) {
  Session session(PlanOf(R"(
g (float[N, 3] x) => (float[N, 3] y)
<float[3] w = {0.33, 20, -3}, float step = {0.1}, uint8 zero = {10}, float none = {0}>
{
  h = Mul (x, w)
  s = ReduceSum <keepdims = 0> (x)
  c = Greater (s, none)
  y = If (c) <
    then_branch = t () => (float[N, 3] p) { q = QuantizeLinear (h, step, zero) p = DequantizeLinear (q, step, zero) },
    else_branch = e () => (float[N, 3] n) { n = Neg (h) }>
})",
                         1));
  const Tensor x = Tensor::From<float>({1, 2, 1}, Shape{1, 3});
  session.Step({{"x", x.view()}});
  const float lr = static_cast<float>(kRate);
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[0], 0.33f - lr / 3);
  EXPECT_EQ(session.Get("w").as<float>()[1], 20);
  EXPECT_EQ(session.Get("w").as<float>()[2], -3);
}

// The traces of a detach() in files of torch.onnx's older exporter: in each form the gradient of y passes to h unchanged.
TEST(StraightThrough, DifferencesFromStepFunctionsGetNoGradient) {
  for (const char* form : {"d = Sub (s, h) y = Add (h, d)", "d = Sub (s, h) y = Add (d, h)", "d = Sub (h, s) y = Sub (h, d)",
                           "d = Add (s, h) y = Sub (d, h)", "d = Add (h, s) i = Identity (h) y = Sub (d, i)"}) {
    SCOPED_TRACE(form);
    for (const bool detach : {true, false}) {
      CompileOptions options;
      options.recipe.losses = {{.type = "output", .output = "y"}};
      options.recipe.optimizer.type = "sgd";
      options.recipe.schedule.lr = options.recipe.optimizer.lr = kRate;
      options.entries = {{EntryKind::kStep, 1}, {EntryKind::kPredict, 1}};
      options.import.detach = detach;
      Session session(std::make_shared<const Plan>(Compile(Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.3, 1.75}> { h = Mul (x, w) s = Round (h) )" +
                                                                           std::string(form) + " }"),
                                                           options)));
      const Tensor x = Tensor::From<float>({1, 2}, Shape{1, 2});
      const auto y = session.Predict({{"x", x.view()}});
      EXPECT_NEAR(y.at("y").as<float>()[0], 0, 1e-6);
      EXPECT_NEAR(y.at("y").as<float>()[1], 4, 1e-6);
      session.Step({{"x", x.view()}});
      EXPECT_NEAR(session.Get("w").as<float>()[0], 0.3f - (detach ? static_cast<float>(kRate) / 2 : 0), 1e-6);
      EXPECT_NEAR(session.Get("w").as<float>()[1], 1.75f - (detach ? static_cast<float>(kRate) : 0), 1e-6);
    }
  }
}

// Rounding relative to the maximum of a row, as for low-bit activations, without a recorded detach(). The scale, which has a gradient,
// belongs to the step function.
TEST(StraightThrough, RescaledStepFunctionsGetNoGradient) {
  for (const char* scaled : {"s = Mul (r, m)", "s = Div (r, n)", "l = Clip (r, low, high) s = Mul (m, l)"}) {
    SCOPED_TRACE(scaled);
    Session session(PlanOf(
        R"(g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.3, 1.75}, float low = {-1}, float high = {1}>
{ h = Mul (x, w) a = Abs (h) m = ReduceMax <axes = [1], keepdims = 1> (a) n = Reciprocal (m) q = Div (h, m) r = Round (q) )" +
            std::string(scaled) + " d = Sub (s, h) y = Add (h, d) }",
        1));
    const Tensor x = Tensor::From<float>({1, 2}, Shape{1, 2});
    EXPECT_NEAR(session.Predict({{"x", x.view()}}).at("y").as<float>()[0], 0, 1e-6);
    EXPECT_NEAR(session.Predict({{"x", x.view()}}).at("y").as<float>()[1], 3.5, 1e-6);
    session.Step({{"x", x.view()}});
    EXPECT_NEAR(session.Get("w").as<float>()[0], 0.3f - static_cast<float>(kRate) / 2, 1e-6);
    EXPECT_NEAR(session.Get("w").as<float>()[1], 1.75f - static_cast<float>(kRate), 1e-6);
  }
}

// The form of learned step sizes in quantization: (h - h / 4).detach() + h / 4 is h with a quarter of its gradient.
TEST(StraightThrough, DetachedPartScalesTheGradient) {
  for (const char* form : {"q = Mul (h, c) d = Sub (h, q) y = Add (d, q)", "q = Mul (c, h) d = Sub (h, q) p = Mul (h, c) y = Add (p, d)",
                           "q = Div (h, f) i = Identity (h) d = Sub (i, q) y = Add (d, q)"}) {
    SCOPED_TRACE(form);
    Session session(
        PlanOf("g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.3, 1.75}, float c = {0.25}, float f = {4}> { h = Mul (x, w) " +
                   std::string(form) + " }",
               1));
    const Tensor x = Tensor::From<float>({1, 2}, Shape{1, 2});
    EXPECT_NEAR(session.Predict({{"x", x.view()}}).at("y").as<float>()[1], 3.5, 1e-6);
    session.Step({{"x", x.view()}});
    EXPECT_NEAR(session.Get("w").as<float>()[0], 0.3f - static_cast<float>(kRate) / 8, 1e-6);
    EXPECT_NEAR(session.Get("w").as<float>()[1], 1.75f - static_cast<float>(kRate) / 4, 1e-6);
  }
}

// If both operands are trained, the gradient is as the file specifies.
TEST(StraightThrough, LearnedOperandsKeepTheirGradients) {
  Session session(PlanOf(R"(
g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {0.3, 1.75}, float[2] v = {1, 2}>
{
  h = Mul (x, w)
  s = Mul (x, v)
  d = Sub (s, h)
  y = Add (h, d)
})",
                         1));
  const Tensor x = Tensor::From<float>({1, 2}, Shape{1, 2});
  session.Step({{"x", x.view()}});
  EXPECT_FLOAT_EQ(session.Get("w").as<float>()[1], 1.75f);
  EXPECT_FLOAT_EQ(session.Get("v").as<float>()[1], 2 - static_cast<float>(kRate));
}

}  // namespace
}  // namespace gradloom

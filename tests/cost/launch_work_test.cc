// The work of launches on the CPU, where it is not what their operators' rows count.
#include "compiler/cost/launch_work.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/compile.h"

namespace gradloom {
namespace {

struct Launch {
  std::string kernel;
  Cost cost;
  std::vector<KernelWork> work;

  KernelWork all() const {
    KernelWork sum{.launches = 0};
    for (const KernelWork& each : work) {
      sum.launches += each.launches, sum.flops += each.flops, sum.bytes += each.bytes, sum.functions += each.functions;
    }
    return sum;
  }
};

// The launch of this operator in a prediction.
Launch LaunchOf(const std::string& op, const std::string& graph) {
  CompileOptions options;
  options.entries = {{EntryKind::kPredict, 4}};
  const Plan plan = Compile(Model::FromText("<ir_version: 10, opset_import: [\"\" : 23]>\ng " + graph), options);
  for (const Instruction& instruction : plan.programs[0].instructions) {
    if (instruction.op == op)
      return {instruction.kernel, CostOfLaunch(plan.programs[0], instruction), WorkOfLaunch(plan, plan.programs[0], instruction)};
  }
  ADD_FAILURE() << "no " << op;
  return {};
}

std::string Convolution(int64_t inputs, int64_t outputs, int64_t groups = 1, int64_t kernel = 3, int64_t stride = 1) {
  const auto n = [](int64_t value) { return std::to_string(value); };
  const std::string pad = n(kernel / 2);
  return "(float[N, " + n(inputs) + ", 32, 32] x, float[" + n(outputs) + ", " + n(inputs / groups) + ", " + n(kernel) + ", " + n(kernel) +
         "] w) => (float[N, " + n(outputs) + ", H, W] y) { y = Conv <group = " + n(groups) + ", strides = [" + n(stride) + ", " +
         n(stride) + "], pads = [" + pad + ", " + pad + ", " + pad + ", " + pad + "]> (x, w) }";
}

double FlopsShare(const Launch& launch) { return launch.all().flops / launch.cost.flops; }

TEST(LaunchWork, ConvolutionsCountTheProductsOfTheirMethod) {
  const Launch winograd = LaunchOf("Conv", Convolution(64, 64));
  EXPECT_EQ(winograd.kernel, "cpu.WinogradConv");
  EXPECT_DOUBLE_EQ(FlopsShare(winograd), 2.0 / 3);
  EXPECT_NEAR(FlopsShare(LaunchOf("Conv", Convolution(64, 64, 1, 3, 2))), 1, 0.01);
  EXPECT_EQ(FlopsShare(LaunchOf("Conv", Convolution(64, 64, 64))), 6);
  // Few channels leave vectors partly empty.
  EXPECT_GT(FlopsShare(LaunchOf("Conv", Convolution(1, 6, 1, 5))), 3);
  EXPECT_LT(FlopsShare(LaunchOf("Conv", Convolution(6, 16, 1, 5))), 1.5);
}

TEST(LaunchWork, ProductsPayForWholeTiles) {
  const auto product = [](int64_t columns) {
    const std::string n = std::to_string(columns);
    return LaunchOf("MatMul", "(float[64, 64] x, float[64, " + n + "] w) => (float[64, " + n + "] y) { y = MatMul (x, w) }");
  };
  EXPECT_DOUBLE_EQ(FlopsShare(product(32)), 1);
  EXPECT_DOUBLE_EQ(FlopsShare(product(10)), 1.6);
  EXPECT_GT(product(32).all().launches, 1);
}

TEST(LaunchWork, FunctionsOfElementsHaveWeights) {
  const auto function = [](const std::string& op) {
    return LaunchOf(op, "(float[N, 100] x) => (float[N, 100] y) { y = " + op + " (x) }").all().functions / 400;
  };
  EXPECT_EQ(function("Relu"), 1);
  EXPECT_GT(function("Exp"), 2);
  EXPECT_GT(function("Tanh"), function("Exp"));
  // A group of them has the sum of their weights.
  const Launch fused =
      LaunchOf("Fused", "(float[N, 100] x, float[N, 100] z) => (float[N, 100] y) { a = Tanh (x) b = Mul (a, z) y = Add (b, x) }");
  EXPECT_EQ(fused.all().functions / 400, function("Tanh") + 2);
  const auto softmax = LaunchOf("Softmax", "(float[N, 100] x) => (float[N, 100] y) { y = Softmax (x) }");
  EXPECT_GT(softmax.all().functions / 400, function("Exp"));
}

TEST(LaunchWork, AttentionCountsTheScoresThatItComputes) {
  const auto attention = [](const std::string& attributes) {
    const std::string type = "float[N, 4, 512, 32] ";
    return LaunchOf("Attention",
                    "(" + type + "q, " + type + "k, " + type + "v) => (" + type + "y) { y = Attention " + attributes + " (q, k, v) }");
  };
  const Launch all = attention("<scale = 0.1>"), causal = attention("<scale = 0.1, is_causal = 1>");
  ASSERT_EQ(all.work.size(), 2U);
  EXPECT_EQ(all.cost.flops, causal.cost.flops);
  EXPECT_GT(causal.all().flops, 0.5 * all.all().flops);
  EXPECT_LT(causal.all().flops, 0.7 * all.all().flops);
  EXPECT_DOUBLE_EQ(causal.all().functions / all.all().functions, causal.all().flops / all.all().flops);
  EXPECT_EQ(all.work[1].launches, 0);
}

// Statistics and their gradients read operands twice.
TEST(LaunchWork, CountsThePassesOfBatchNormalization) {
  CompileOptions options;
  options.recipe.losses = {LossTerm{.type = "output"}};
  options.entries = {{EntryKind::kStep, 8}};
  const Plan plan = Compile(Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[N, 4, 16, 16] x) => (float[N, 4, 16, 16] y)
<float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float[4] m = {0, 0, 0, 0}, float[4] v = {1, 1, 1, 1}>
{ z, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v) y = Sigmoid (z) }
)"),
                            options);
  int found = 0;
  for (const Instruction& instruction : plan.programs[0].instructions) {
    if (!instruction.op.starts_with("BatchNorm")) continue;
    const double bytes = CostOfLaunch(plan.programs[0], instruction).bytes;
    EXPECT_GT(WorkOfLaunch(plan, plan.programs[0], instruction).at(0).bytes, 1.4 * bytes) << instruction.op;
    ++found;
  }
  EXPECT_GE(found, 2);
}

}  // namespace
}  // namespace gradloom

// Which gradients may be summed in any order.
#include "compiler/passes/schedule/relax_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// A convolution of the samples, and one of weights alone, which each device computes for itself.
Model Net() {
  std::mt19937 random(1);
  return ModelOf("g (float[N, 3, 6, 6] x) => (float[N, 4] z)\n<" + Weights(random, "u", {4, 3, 3, 3}) + ", " +
                 Weights(random, "seed", {1, 2, 6, 6}) + ", " + Weights(random, "v", {4, 2, 3, 3}) +
                 ">\n{\n a = Conv (x, u)\n b = Conv (seed, v)\n c = Mul (a, b)\n d = GlobalAveragePool (c)\n z = Flatten (d)\n}\n");
}

// By operator: how many instructions of the plan's programs may sum in any order, and how many may not.
struct Counts {
  int any = 0, fixed = 0;
  bool operator==(const Counts&) const = default;
};

std::map<std::string, Counts> Orders(const CompileOptions& options) {
  std::map<std::string, Counts> orders;
  for (const Program& program : Compile(Net(), options).programs) {
    for (const Instruction& instruction : program.instructions) {
      if (!instruction.op.starts_with("Conv")) continue;
      Counts& counts = orders[instruction.op];
      ++(instruction.attributes.Int("deterministic", 1) == 0 ? counts.any : counts.fixed);
    }
  }
  return orders;
}

CompileOptions AnyOrder(int devices, int64_t batch) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {batch});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.fixed_order = false;
  return options;
}

using Orderings = std::map<std::string, Counts>;

TEST(RelaxOrder, MarksGradientsOnGpus) {
  const CompileOptions options = AnyOrder(1, 8);
  EXPECT_EQ(Orders(options), (Orderings{{"Conv", {0, 2}}, {"ConvGradInput", {1, 0}}, {"ConvGradWeight", {2, 0}}}));
  CompileOptions fixed = options;
  fixed.recipe.fixed_order = true;
  EXPECT_EQ(Orders(fixed), (Orderings{{"Conv", {0, 2}}, {"ConvGradInput", {0, 1}}, {"ConvGradWeight", {0, 2}}}));
  CompileOptions cpu = options;
  cpu.recipe.device = DeviceKind::kCpu;
  cpu.recipe.isa = "any";
  EXPECT_EQ(Orders(cpu), Orders(fixed));
}

// Replicas of a weight must stay equal, so what each device computes for itself keeps its order. Gradients that devices sum need not.
TEST(RelaxOrder, LeavesWhatEachDeviceComputesForItself) {
  EXPECT_EQ(Orders(AnyOrder(2, 8)), (Orderings{{"Conv", {0, 2}}, {"ConvGradInput", {0, 1}}, {"ConvGradWeight", {1, 1}}}));
  // Of three devices, the last one has no samples.
  EXPECT_EQ(Orders(AnyOrder(3, 4)), (Orderings{{"Conv", {0, 2}}, {"ConvGradInput", {0, 2}}, {"ConvGradWeight", {1, 2}}}));
  EXPECT_EQ(Orders(AnyOrder(2, 1)).at("ConvGradWeight").any, 0) << "a batch of one sample, which no device shares";
}

}  // namespace
}  // namespace gradloom

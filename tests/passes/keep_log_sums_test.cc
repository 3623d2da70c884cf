// Where the gradient of attention is given what the forward pass computed. tests/cuda:hazard_test checks that it gives the same bits.
#include "compiler/passes/fusion/keep_log_sums.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/packed_net.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

CompileOptions OnGpu(int devices = 1) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {4});
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.precision = Precision::kBfloat16;
  return options;
}

const Instruction& Find(const Plan& plan, const std::string& op) {
  for (const Instruction& instruction : plan.programs.at(0).instructions) {
    if (instruction.op == op) return instruction;
  }
  throw Error(ErrorCode::kInternal, "there is no " + op);
}

// Every form of attention that cuDNN computes, packed or not, on one device and on two.
TEST(KeepLogSums, WhereCudnnComputes) {
  for (const PackedNet& net : PackedNets()) {
    if (net.name == "dropout") continue;  // it is not one operator on a GPU
    SCOPED_TRACE(net.name);
    std::mt19937 random(7);
    const Model model = PackedModel(net, 8, random);
    for (int devices : {1, 2}) {
      for (bool packs : {true, false}) {
        CompileOptions options = OnGpu(devices);
        if (!packs) options.control.disabled = {"pack_attention"};
        const Plan plan = Compile(model, options);
        EXPECT_EQ(Count(plan, "Attention"), 0);
        ASSERT_EQ(Count(plan, "AttentionTraining"), 1);
        const Instruction &forward = Find(plan, "AttentionTraining"), &gradient = Find(plan, "AttentionGrad");
        EXPECT_EQ(forward.kernel, "cudnn.gradloom.AttentionTraining");
        EXPECT_EQ(gradient.kernel, "cudnn.gradloom.AttentionGrad");
        std::vector<Use> made;
        for (const Use& use : forward.uses) {
          if (use.access == Access::kWrite && use.buffer >= 0) made.push_back(use);
        }
        ASSERT_EQ(made.size(), 2U);
        ASSERT_GT(gradient.uses.size(), 12U);
        for (size_t i : {size_t{0}, size_t{1}}) {
          EXPECT_EQ(gradient.uses[10 + i].buffer, made[i].buffer);
          EXPECT_EQ(gradient.uses[10 + i].access, Access::kRead);
        }
      }
    }
  }
}

// The attribute of a gradient that may be summed in any order does not hide its forward node.
TEST(KeepLogSums, IfSumsMayHaveAnyOrder) {
  std::mt19937 random(7);
  CompileOptions options = OnGpu();
  options.recipe.isa = "sm_90";
  options.recipe.fixed_order = false;
  const Plan plan = Compile(PackedModel(PackedNets()[0], 8, random), options);
  EXPECT_EQ(Count(plan, "AttentionTraining"), 1);
  EXPECT_EQ(Find(plan, "AttentionGrad").attributes.Int("deterministic", 1), 0);
}

// The CPU's kernels, and attention over products, repeat only products, for which the log-sum-exps are of no use.
TEST(KeepLogSums, LeavesOtherKernelsAlone) {
  std::mt19937 random(7);
  const PackedNet net = PackedNets()[0];
  for (int64_t size : {8, 3}) {
    for (Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
      for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
        CompileOptions options = OnGpu();
        options.recipe.device = device;
        options.recipe.precision = precision;
        const bool keeps = device == DeviceKind::kCuda && size == 8 && precision == Precision::kBfloat16;
        EXPECT_EQ(Count(Compile(PackedModel(net, size, random), options), "AttentionTraining"), keeps ? 1 : 0);
      }
    }
  }
}

// Without a gradient there is nothing to keep.
TEST(KeepLogSums, OnlyInTraining) {
  std::mt19937 random(7);
  CompileOptions options = OnGpu();
  options.entries = {{EntryKind::kEval, 4}};
  EXPECT_EQ(Count(Compile(PackedModel(PackedNets()[0], 8, random), options), "AttentionTraining"), 0);
}

}  // namespace
}  // namespace gradloom

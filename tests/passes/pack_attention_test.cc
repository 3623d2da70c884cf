// Attention that reads Q, K and V, or K and V, from one product, and writes their gradients side by side, gives the same bits without the
// copies.
#include "compiler/passes/fusion/pack_attention.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/packed_net.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

CompileOptions Options(int devices = 1) { return OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {4}); }

CompileOptions Without(CompileOptions options) {
  options.control.disabled = {"pack_attention"};
  return options;
}

std::vector<Batch> Batches(const PackedNet& net, std::mt19937& random) {
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) {
    batches.push_back({{"x", Random(random, Shape{4, kPackedLength, 4})}, {"target", Classes(random, 4, 2)}});
    if (!net.inputs.empty()) batches.back().emplace("mask", Random(random, Shape{4, 1, 1, kPackedLength}));
  }
  return batches;
}

size_t Launches(const Plan& plan) { return plan.programs.at(0).instructions.size(); }

// The attention of a plan and its gradients, and how many of them are packed.
struct Attentions {
  int all = 0, packed = 0;
};
Attentions AttentionsOf(const Plan& plan) {
  Attentions found;
  for (const Instruction& instruction : plan.programs.at(0).instructions) {
    if (!instruction.op.starts_with("Attention")) continue;
    ++found.all;
    found.packed += instruction.attributes.has("packed") ? 1 : 0;
  }
  return found;
}

// No copies are left around attention that is packed.
void ExpectPacks(const PackedNet& net, const Plan& plan, const Plan& without) {
  const Attentions found = AttentionsOf(plan);
  EXPECT_EQ(found.all, 2);
  EXPECT_EQ(found.packed, net.packs ? 2 : 0);
  EXPECT_EQ(AttentionsOf(without).packed, 0);
  if (!net.packs) {
    EXPECT_EQ(Launches(plan), Launches(without));
    return;
  }
  for (const char* op : {"Split", "Concat", "Slice", "Gather"}) EXPECT_EQ(Count(plan, op), 0) << op;
  // Of x, of y and of its gradient; or of a value that is changed next to a transposition, and of its gradient.
  const bool changed = (net.join + net.split).find("Tanh") != std::string::npos;
  EXPECT_EQ(Count(plan, "Transpose"), net.positions_first ? 3 : changed ? 2 : 0);
  EXPECT_LT(Launches(plan), Launches(without));
}

TEST(PackAttention, KeepsEveryBit) {
  for (const PackedNet& net : PackedNets()) {
    SCOPED_TRACE(net.name);
    std::mt19937 random(7);
    const Model model = PackedModel(net, 4, random);
    const std::vector<Batch> batches = Batches(net, random);
    for (int devices : {1, 2}) {
      for (Precision precision : {Precision::kFloat32, Precision::kBfloat16, Precision::kFloat16}) {
        CompileOptions options = Options(devices);
        options.recipe.precision = precision;
        if (precision == Precision::kFloat16) options.recipe.loss_scale = {.initial = 1024};
        ExpectPacks(net, Compile(model, options), Compile(model, Without(options)));
        ExpectSameBits(Train(model, Without(options), batches), Train(model, options, batches));
      }
    }
  }
}

// Evaluation and prediction have no gradients.
TEST(PackAttention, WithoutGradients) {
  for (const PackedNet& net : PackedNets()) {
    SCOPED_TRACE(net.name);
    std::mt19937 random(7);
    CompileOptions options = Options();
    options.entries = {{EntryKind::kEval, 4}};
    const Model model = PackedModel(net, 4, random);
    const Plan plan = Compile(model, options);
    const Attentions found = AttentionsOf(plan);
    EXPECT_EQ(found.all, 1);
    EXPECT_EQ(found.packed, net.packs ? 1 : 0);
  }
}

// By the kernels that compute the separate form: cuDNN's in 16 bits, with vectors that it supports.
TEST(PackAttention, OnAGpu) {
  for (const PackedNet& net : PackedNets()) {
    SCOPED_TRACE(net.name);
    for (int64_t size : {8, 3}) {
      std::mt19937 random(7);
      const Model model = PackedModel(net, size, random);
      CompileOptions options = Options();
      options.recipe.device = DeviceKind::kCuda;
      options.recipe.precision = Precision::kBfloat16;
      const Plan plan = Compile(model, options);
      // Dropout of a short sequence is not fused on a GPU.
      if (net.name == "dropout") continue;
      ExpectPacks(net, plan, Compile(model, Without(options)));
      for (const Instruction& instruction : plan.programs.at(0).instructions) {
        if (!instruction.op.starts_with("Attention")) continue;
        EXPECT_TRUE(instruction.kernel.starts_with(size == 8 ? "cudnn." : "cublas.")) << instruction.kernel;
      }
    }
  }
}

}  // namespace
}  // namespace gradloom

// A causal model over 512 tokens, compiled for a GPU: its attention is computed as products, and training matches the CPU.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Two heads of `size` elements each, and two classes.
std::string Net(int64_t size, bool drops, std::mt19937& random) {
  const std::string heads = "<perm = [0, 2, 1, 3]> ", width = std::to_string(size);
  std::string text = "g (float[N, 512, 4] x) => (float[N, 2] z)\n<";
  for (const char* w : {"wq", "wk", "wv"}) text += Weights(random, w, {4, 2 * size}) + ",\n";
  text += Weights(random, "wz", {2 * size, 2}) + ",\nfloat half = {0.5}, float least = {-3e38}, float part = {0.3}, bool yes = {1}, " +
          "int64[4] split = {0, 0, 2, " + width + "}, int64[3] flat = {0, 0, " + std::to_string(2 * size) + "}>\n{\n" +
          " l = Constant <value = int64[2] {512, 512}> ()\n ones = ConstantOfShape <value = float[1] {1}> (l)\n" +
          " low = Trilu <upper = 0> (ones)\n mask = Cast <to = 9> (low)\n";
  for (const char* w : {"q", "k", "v"}) text += std::string(w) + "0 = MatMul (x, w" + w + ")\n " + w + " = Reshape (" + w + "0, split)\n ";
  text += "qh = Transpose " + heads + "(q)\n kt = Transpose <perm = [0, 2, 3, 1]> (k)\n vh = Transpose " + heads + "(v)\n" +
          " s = MatMul (qh, kt)\n c = Mul (s, half)\n m = Where (mask, c, least)\n p = Softmax <axis = -1> (m)\n " +
          (drops ? "d, kept = Dropout (p, part, yes)\n" : "d = Identity (p)\n") + " o = MatMul (d, vh)\n ot = Transpose " + heads +
          "(o)\n y = Reshape (ot, flat)\n e = Relu (y)\n r = ReduceMean <keepdims = 0, axes = [1]> (e)\n z = MatMul (r, wz)\n}\n";
  return text;
}

TEST(CudaAttentionTraining, MatchesTheCpu) {
  for (bool drops : {false, true}) {
    SCOPED_TRACE(drops);
    std::mt19937 random(7);
    const Model model = ModelOf(Net(drops ? 4 : 3, drops, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{2, 512, 4})}, {"target", Classes(random, 2, 2)}});
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {2});
    // Adam would turn the rounding error of a nearly zero gradient into a full step.
    options.recipe.optimizer.type = "sgd";
    const auto cpu = Train(model, options, batches);
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = "sm_90";
    const Plan plan = Compile(model, options);
    EXPECT_EQ(Count(plan, drops ? "AttentionDropout" : "Attention"), 1);
    EXPECT_EQ(Count(plan, drops ? "AttentionDropoutGrad" : "AttentionGrad"), 1);
    for (const Instruction& instruction : plan.programs.at(0).instructions) {
      if (!instruction.op.starts_with("Attention")) continue;
      EXPECT_TRUE(instruction.kernel.starts_with("cublas.")) << instruction.kernel;
    }
    const auto gpu = Train(model, options, batches);
    ExpectNear(cpu, gpu, 1e-4);
    // For any order of streams.
    ExpectSameBits(gpu, Train(model, options, batches, 3));
  }
}

}  // namespace
}  // namespace gradloom

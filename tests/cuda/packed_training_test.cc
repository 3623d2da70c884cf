// Training on the CUDA device with attention that reads Q, K and V from one product, and whose forward pass keeps the log-sum-exps of its
// scores, gives the same bits as with copies of these parts, and with a gradient that repeats the forward pass.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "compiler/compile.h"
#include "tests/cuda/library_bits.h"
#include "tests/passes/packed_net.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

TEST(CudaPackedTraining, GivesTheSameBits) {
  for (const PackedNet& net : PackedNets()) {
    if (!net.packs || net.name == "dropout") continue;  // short attention with dropout is not one operator on a GPU
    SCOPED_TRACE(net.name);
    // By cuDNN, and by products, which it has no vectors for.
    for (int64_t size : {8, 3}) {
      if (size == 3 && net.name != PackedNets()[0].name) continue;
      std::mt19937 random(7);
      const Model model = PackedModel(net, size, random);
      std::vector<Batch> batches;
      for (int i = 0; i < 2; ++i) {
        batches.push_back({{"x", Random(random, Shape{4, kPackedLength, 4})}, {"target", Classes(random, 4, 2)}});
        if (!net.inputs.empty()) batches.back().emplace("mask", Random(random, Shape{4, 1, 1, kPackedLength}));
      }
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
      options.recipe.device = DeviceKind::kCuda;
      options.recipe.isa = "sm_90";
      options.recipe.precision = Precision::kBfloat16;
      const auto packed = Train(model, options, batches);
      EXPECT_EQ(Count(Compile(model, options), "Split"), 0);
      // Only cuDNN's gradient repeats the forward pass.
      EXPECT_EQ(Count(Compile(model, options), "AttentionTraining"), size == 8 ? 1 : 0);
      ExpectSameBits(Train(model, options, batches, 5), packed);
      for (const char* pass : {"pack_attention", "keep_log_sums"}) {
        SCOPED_TRACE(pass);
        options.control.disabled = {pass};
        ExpectSameBitsOfLibraries(Train(model, options, batches), packed, 6e-2);
      }
    }
  }
}

}  // namespace
}  // namespace gradloom

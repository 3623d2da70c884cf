// Updates that read 16-bit gradients give the same bits as updates that read them widened, and need less memory.
#include "compiler/passes/precision/narrow_gradients.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

Model TwoLayers(std::mt19937& random) {
  return ModelOf("g (float[N, 40] x) => (float[N, 3] z)\n<" + Weights(random, "w", {40, 61}) + ",\n" + Weights(random, "c", {61}) + ",\n" +
                 Weights(random, "u", {61, 3}) + ">\n{\n h = Gemm (x, w, c)\n r = Relu (h)\n z = MatMul (r, u)\n}\n");
}

std::vector<Batch> Batches(std::mt19937& random) {
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{16, 40})}, {"target", Classes(random, 16, 3)}});
  return batches;
}

CompileOptions Options(Precision precision, int devices = 1) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {16});
  options.recipe.precision = precision;
  if (precision == Precision::kFloat16) options.recipe.loss_scale = {.initial = 1024, .dynamic = true};
  options.recipe.fetch_gradients = false;
  return options;
}

CompileOptions Without(CompileOptions options) {
  options.control.disabled = {"narrow_gradients"};
  return options;
}

TEST(NarrowGradients, ChangeNoBit) {
  for (const char* optimizer : {"sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "lamb"}) {
    SCOPED_TRACE(optimizer);
    std::mt19937 random(7);
    const Model model = TwoLayers(random);
    const std::vector<Batch> batches = Batches(random);
    CompileOptions options = Options(Precision::kBfloat16);
    options.recipe.optimizer.type = optimizer;
    ExpectSameBits(Train(model, Without(options), batches), Train(model, options, batches));
    // The gradients of w, c and u.
    EXPECT_EQ(Count(Compile(model, Without(options)), "Cast"), Count(Compile(model, options), "Cast") + 3);
  }
}

// Other readers of a gradient in float32 keep the cast: the user, a loss scale's test for infinities, another device.
TEST(NarrowGradients, LeaveGradientsWithOtherReaders) {
  std::mt19937 random(7);
  const Model model = TwoLayers(random);
  const std::vector<Batch> batches = Batches(random);
  CompileOptions fetched = Options(Precision::kBfloat16);
  fetched.recipe.fetch_gradients = true;
  for (const CompileOptions& options : {fetched, Options(Precision::kFloat16), Options(Precision::kBfloat16, 2)}) {
    EXPECT_EQ(Count(Compile(model, Without(options)), "Cast"), Count(Compile(model, options), "Cast"));
    ExpectSameBits(Train(model, Without(options), batches), Train(model, options, batches));
  }
}

}  // namespace
}  // namespace gradloom

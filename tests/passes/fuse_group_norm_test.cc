// Group normalization as PyTorch exports it up to opset 20 gives the same results as one operator.
#include "compiler/passes/patterns/fuse_group_norm.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Case {
  std::string name;
  std::string body;  // computes y from x [N, 6, 2, 3]
  int64_t fused;
  std::string ones = "{1, 1, 1}";
};

const std::string kGroups = "n = Constant <value = int64[3] {0, 3, -1}> ()\n g = Reshape (x, n)\n";
const std::string kInstances = "i = InstanceNormalization <epsilon = 0.001> (g, ones, zeros)\n s = Shape (x)\n r = Reshape (i, s)\n";
const std::string kVectors = "a = Constant <value = int64[2] {1, 2}> ()\n ws = Unsqueeze (w, a)\n bs = Unsqueeze (b, a)\n";

const Case kCases[] = {
    {"scale and bias", kGroups + kInstances + kVectors + "m = Mul (r, ws)\n y = Add (m, bs)\n", 1},
    {"the other way round, with an axis for the samples",
     kGroups + kInstances + "a = Constant <value = int64[3] {0, 2, 3}> ()\n ws = Unsqueeze (w, a)\n bs = Unsqueeze (b, a)\n" +
         "m = Mul (ws, r)\n y = Add (bs, m)\n",
     1},
    {"no scale", kGroups + kInstances + kVectors + "y = Add (r, bs)\n", 1},
    {"neither", kGroups + kInstances + "y = Identity (r)\n", 1},
    {"a scale of each point", kGroups + kInstances + "m = Mul (r, points)\n y = Add (m, points)\n", 1},
    {"read twice", kGroups + kInstances + kVectors + "m = Mul (r, ws)\n t = Mul (i, i)\n u = Reshape (t, s)\n y = Add (m, u)\n", 0},
    {"instances with a scale of their own", kGroups + kInstances + kVectors + "m = Mul (r, ws)\n y = Add (m, bs)\n", 0, "{1, 2, 1}"},
    {"other groups",
     "n = Constant <value = int64[3] {0, 4, -1}> ()\n g = Reshape (x, n)\n"
     "i = InstanceNormalization (g, four, none)\n s = Shape (x)\n y = Reshape (i, s)\n",
     0},
};

TEST(FuseGroupNorm, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(7);
    const Model model = ModelOf(
        "g (float[N, 6, 2, 3] x) => (float[N, 2] z)\n<" + Weights(random, "w", {6}) + ",\n" + Weights(random, "b", {6}) + ",\n" +
        Weights(random, "points", {6, 2, 3}) + ",\n" + Weights(random, "v", {6, 2}) + ">\n{\n ones = Constant <value = float[3] " + c.ones +
        "> ()\n zeros = Constant <value = float[3] {0, 0, 0}> ()\n four = Constant <value = float[4] {1, 1, 1, 1}> ()\n"
        " none = Constant <value = float[4] {0, 0, 0, 0}> ()\n" +
        c.body + "q = Sigmoid (y)\n p = ReduceMean <keepdims = 0, axes = [2, 3]> (q)\nz = MatMul (p, v)\n}\n");
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{4, 6, 2, 3})}, {"target", Classes(random, 4, 2)}});
    for (int devices : {1, 2}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {4});
      options.recipe.optimizer.type = "sgd";
      if (devices == 1) {
        CompileOptions predict = options;
        predict.entries = {{EntryKind::kPredict, 4}};
        EXPECT_EQ(Count(Compile(model, predict), "GroupNormalization"), c.fused);
      }
      const auto fused = Train(model, options, batches);
      options.control.disabled = {"fuse_group_norm"};
      ExpectNear(Train(model, options, batches), fused, 1e-4);
    }
  }
}

}  // namespace
}  // namespace gradloom

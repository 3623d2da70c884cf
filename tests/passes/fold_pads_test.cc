// Zero padding before a convolution, folded into its pads, gives the same results.
#include "compiler/passes/patterns/fold_pads.h"

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
  std::string body;  // computes y from x [N, 3, 6, 5]
  int64_t pads_left;
};

const std::string kConv = "y = Conv <strides = [2, 2]> (p, w)\n";

const Case kCases[] = {
    {"one side more than the other", "n = Constant <value = int64[8] {0, 0, 0, 1, 0, 0, 1, 2}> ()\n p = Pad (x, n)\n" + kConv, 0},
    {"with the convolution's own pads",
     "n = Constant <value = int64[8] {0, 0, 0, 1, 0, 0, 1, 0}> ()\n p = Pad (x, n)\n y = Conv <pads = [1, 0, 0, 1]> (p, w)\n", 0},
    {"a zero by name",
     "n = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()\n zero = Constant <value = float {0}> ()\n p = Pad (x, n, zero)\n" +
         kConv,
     0},
    {"ones",
     "n = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()\n one = Constant <value = float {1}> ()\n p = Pad (x, n, one)\n" + kConv,
     1},
    {"reflected", "n = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()\n p = Pad <mode = \"reflect\"> (x, n)\n" + kConv, 1},
    {"elements cut off", "n = Constant <value = int64[8] {0, 0, -1, 1, 0, 0, 1, 1}> ()\n p = Pad (x, n)\n" + kConv, 1},
    {"something else reads it",
     "n = Constant <value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}> ()\n p = Pad (x, n)\n c = Conv (p, w)\n m = ReduceMax (p)\n y = Mul (c, "
     "m)\n",
     1},
};

TEST(FoldPads, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(5);
    const Model model = ModelOf("g (float[N, 3, 6, 5] x) => (float[N, 2] z)\n<" + Weights(random, "w", {4, 3, 2, 2}) + ",\n" +
                                Weights(random, "v", {4, 2}) + ">\n{\n" + c.body +
                                "r = ReduceMean <keepdims = 0, axes = [2, 3]> (y)\nz = MatMul (r, v)\n}\n");
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{4, 3, 6, 5})}, {"target", Classes(random, 4, 2)}});
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
    options.recipe.optimizer.type = "sgd";
    CompileOptions predict = options;
    predict.entries = {{EntryKind::kPredict, 4}};
    EXPECT_EQ(Count(Compile(model, predict), "Pad"), c.pads_left);
    const auto folded = Train(model, options, batches);
    options.control.disabled = {"fold_pads"};
    ExpectNear(Train(model, options, batches), folded, 1e-5);
  }
}

}  // namespace
}  // namespace gradloom

// A linear layer that an exporter wrote as a transposition, a product and a sum gives the same results as one Gemm.
#include "compiler/passes/patterns/fuse_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Case {
  std::string name;
  std::string body;  // computes y from x [N, 3, 4] and rows [N, 4]
  std::string reduce = "r = ReduceMean <keepdims = 0, axes = [1]> (y)\n";
  int gemms = 1;  // in the forward pass, including the last layer's
  int64_t transposes = 0;
};

const Case kCases[] = {
    {"transposed, with a bias", "t = Transpose <perm = [1, 0]> (wt)\n m = MatMul (x, t)\n y = Add (b, m)\n"},
    {"transposed without a bias", "t = Transpose (wt)\n y = MatMul (x, t)\n"},
    {"a bias behind a matrix in its own order", "m = MatMul (x, w)\n y = Add (m, b)\n"},
    {"rows", "t = Transpose <perm = [1, 0]> (wt)\n m = MatMul (rows, t)\n y = Add (m, b)\n", "r = Identity (y)\n"},
    {"samples along the second axis",
     "x2 = Transpose <perm = [1, 0, 2]> (x)\n t = Transpose <perm = [1, 0]> (wt)\n m = MatMul (x2, t)\n y = Add (b, m)\n",
     "r = ReduceMean <keepdims = 0, axes = [0]> (y)\n", 1, 1},
    {"one weight in two layers, one of them transposed",
     "m1 = MatMul (x, w)\n y1 = Add (m1, b)\n t = Transpose <perm = [1, 0]> (w)\n m2 = MatMul (y1, t)\n m3 = MatMul (m2, w)\n y = Add (m3, "
     "b)\n",
     "r = ReduceMean <keepdims = 0, axes = [1]> (y)\n", 3},
    {"nothing to gain", "y = MatMul (x, w)\n", "r = ReduceMean <keepdims = 0, axes = [1]> (y)\n", 0},
    {"a product that is read twice keeps its sum", "m = MatMul (x, w)\n s = Add (m, b)\n y = Mul (s, m)\n",
     "r = ReduceMean <keepdims = 0, axes = [1]> (y)\n", 0},
};

std::string Net(const Case& c, std::mt19937& random) {
  return "g (float[N, 3, 4] x) => (float[N, 2] z)\n<" + Weights(random, "w", {4, 5}) + ",\n" + Weights(random, "wt", {5, 4}) + ",\n" +
         Weights(random, "b", {5}) + ",\n" + Weights(random, "v", {5, 2}) + ">\n{\n rows = ReduceMax <keepdims = 0, axes = [1]> (x)\n" +
         c.body + c.reduce + "z = MatMul (r, v)\n}\n";
}

TEST(FuseLinear, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(11);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 4})}, {"target", Classes(random, 5, 2)}});
    const auto look = [&](const CompileOptions& options) {
      CompileOptions predict = options;
      predict.entries = {{EntryKind::kPredict, 5}};
      const Plan plan = Compile(model, predict);
      EXPECT_EQ(Count(plan, "Gemm"), c.gemms);
      EXPECT_EQ(Count(plan, "Transpose"), c.transposes);
      EXPECT_EQ(Count(Compile(model, options), "Transpose"), c.transposes);
    };
    ExpectSameWithout("fuse_linear", model, batches, 1e-4, look);
  }
}

// With no features, a product over no elements is zero, and the bias remains.
TEST(FuseLinear, NoFeatures) {
  const Model model = ModelOf(R"(
g (float[N, 3, 4] x) => (float[N, 3, 2] z)
<float[2, 0] wt = {}, float[2] b = {1, -2}, int64[1] none = {0}, int64[1] last = {2}>
{
  nothing = Slice (x, none, none, last)
  t = Transpose <perm = [1, 0]> (wt)
  m = MatMul (nothing, t)
  z = Add (m, b)
}
)");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "y"}}, 1, {2});
  std::mt19937 random(1);
  const std::vector<Batch> batches = {{{"x", Random(random, Shape{2, 3, 4})}, {"y", Random(random, Shape{2, 3, 2})}}};
  const auto fused = Train(model, options, batches);
  options.control.disabled = {"fuse_linear"};
  ExpectNear(Train(model, options, batches), fused, 1e-6);
}

}  // namespace
}  // namespace gradloom

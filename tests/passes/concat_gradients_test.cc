// Gradients of parts of one tensor, concatenated, equal their sum.
#include "compiler/passes/gradient/concat_gradients.h"

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
  std::string body;                                        // computes r [N, 4] from h [N, 3, 4]
  int64_t slice_grads = 0, gather_grads = 0, concats = 1;  // in a training step
};

const Case kCases[] = {
    {"the steps of a sequence",
     " a = Gather <axis = 1> (h, i0)\n b = Gather <axis = 1> (h, i1)\n c = Gather <axis = 1> (h, i_last)\n"
     " ab = Mul (a, b)\n r = Mul (ab, c)\n"},
    {"parts of what is added to itself",
     " d = Add (h, h)\n a = Slice (d, at0, at2, at2)\n b = Slice (d, at2, at_end, at2)\n n = Neg (b)\n t = Concat <axis = 2> (n, a)\n"
     " r = ReduceMean <keepdims = 0, axes = [1]> (t)\n",
     0, 0, 2},
    {"halves, and all of it",
     " a = Slice (h, at0, at2, at2)\n b = Slice (h, at2, at_end, at2)\n n = Neg (b)\n t = Concat <axis = 2> (n, a)\n"
     " s = Mul (t, h)\n r = ReduceMean <keepdims = 0, axes = [1]> (s)\n",
     0, 0, 2},
    {"parts that leave something out", " a = Gather <axis = 1> (h, i0)\n c = Gather <axis = 1> (h, i_last)\n r = Mul (a, c)\n"},
    {"parts that overlap",
     " a = Slice (h, at0, at2, at1)\n b = Slice (h, at1, at3, at1)\n s = Mul (a, b)\n r = ReduceMean <keepdims = 0, axes = [1]> (s)\n", 2,
     0, 0},
    {"of three parts two that do not overlap",
     " a = Slice (h, at0, at2, at1)\n b = Slice (h, at1, at3, at1)\n c = Gather <axis = 1> (h, i_last)\n"
     " s = Mul (a, b)\n m = ReduceMean <keepdims = 0, axes = [1]> (s)\n r = Mul (m, c)\n",
     1, 0, 1},
    {"parts of two axes",
     " a = Slice (h, at0, at1, at1)\n b = Slice (h, at1, at3, at1)\n c = Slice (h, at0, at2, at2)\n"
     " bb = ReduceMean <keepdims = 1, axes = [1]> (b)\n ab = Mul (a, bb)\n q = ReduceMean <keepdims = 0, axes = [1]> (ab)\n"
     " cc = ReduceMean <keepdims = 0> (c)\n r = Mul (q, cc)\n",
     1, 0, 1},
    {"rows in order and rows that repeat",
     " a = Gather <axis = 1> (h, rows01)\n b = Gather <axis = 1> (h, rows22)\n c = Gather <axis = 1> (h, i_last)\n"
     " ab = Mul (a, b)\n m = ReduceMean <keepdims = 0, axes = [1]> (ab)\n r = Mul (m, c)\n",
     0, 1, 1},
    {"a Slice that names an axis of which it takes all",
     " a = Slice (h, at00, at14, axes12)\n b = Slice (h, at1, at3, at1)\n bb = ReduceMean <keepdims = 1, axes = [1]> (b)\n"
     " ab = Mul (a, bb)\n r = ReduceMean <keepdims = 0, axes = [1]> (ab)\n"},
    {"a Slice of two axes",
     " a = Slice (h, at00, at13, axes12)\n b = Slice (h, at1, at3, at1)\n bb = ReduceMean <keepdims = 1, axes = [1]> (b)\n"
     " aa = ReduceMean <keepdims = 1, axes = [2]> (a)\n ab = Mul (aa, bb)\n r = ReduceMean <keepdims = 0, axes = [1]> (ab)\n",
     2, 0, 0},
    {"every second one",
     " a = Slice (h, at0, at3, at1, at2)\n b = Gather <axis = 1> (h, i1)\n m = ReduceMean <keepdims = 0, axes = [1]> (a)\n r = Mul (m, "
     "b)\n",
     1, 1, 0},
};

std::string Net(const Case& c, std::mt19937& random) {
  return "g (float[N, 3, 4] x) => (float[N, 2] z)\n<" + Weights(random, "k", {4, 4}) + ",\n" + Weights(random, "v", {4, 2}) +
         ",\nint64 i0 = {0}, int64 i1 = {1}, int64 i_last = {-1}, int64[1] at0 = {0}, int64[1] at1 = {1}, int64[1] at2 = {2},"
         "\nint64[1] at3 = {3}, int64[1] at_end = {9223372036854775807}, int64[2] rows01 = {0, 1}, int64[2] rows22 = {2, 2},"
         "\nint64[2] at00 = {0, 0}, int64[2] at13 = {1, 3}, int64[2] at14 = {1, 4}, int64[2] axes12 = {1, 2}>\n{\n h = MatMul (x, k)\n" +
         c.body + " z = MatMul (r, v)\n}\n";
}

TEST(ConcatGradients, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(13);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 4})}, {"target", Classes(random, 5, 2)}});
    const auto look = [&](const CompileOptions& options) {
      const Plan step = Compile(model, options);
      EXPECT_EQ(Count(step, "SliceGrad"), c.slice_grads);
      EXPECT_EQ(Count(step, "GatherGrad"), c.gather_grads);
      EXPECT_EQ(Count(step, "Concat"), c.concats);
    };
    ExpectSameWithout("concat_gradients", model, batches, 1e-5, look);
  }
}

// In a network that is unrolled over time, the gradient sums grow linearly with the number of steps, not quadratically.
TEST(ConcatGradients, LeavesNoSumOverSteps) {
  std::mt19937 random(14);
  std::string steps = " s0 = Gather <axis = 1> (h, i0)\n", constants = "int64 i0 = {0}";
  constexpr int kSteps = 50;
  for (int t = 1; t < kSteps; ++t) {
    const std::string now = std::to_string(t);
    constants += ", int64 i" + now + " = {" + now + "}";
    steps += " x" + now + " = Gather <axis = 1> (h, i" + now + ")\n s" + now + " = Add (s" + std::to_string(t - 1) + ", x" + now + ")\n";
    steps += " t" + now + " = Tanh (s" + now + ")\n";
    if (t > 1) steps += " u" + now + " = Mul (u" + std::to_string(t - 1) + ", t" + now + ")\n";
    if (t == 1) steps += " u1 = Identity (t1)\n";
  }
  const Model model =
      ModelOf("g (float[N, 50, 4] x) => (float[N, 2] z)\n<" + Weights(random, "k", {4, 4}) + ", " + Weights(random, "v", {4, 2}) + ",\n" +
              constants + ">\n{\n h = MatMul (x, k)\n" + steps + " z = MatMul (u49, v)\n}\n");
  const Plan plan = Compile(model, OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {5}));
  EXPECT_EQ(Count(plan, "GatherGrad"), 0);
  EXPECT_EQ(Count(plan, "Concat"), 1);
}

}  // namespace
}  // namespace gradloom

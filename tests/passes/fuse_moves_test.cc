// Slices concatenated in another order, and gathers between transpositions, give the same results as the operators that replace them.
#include "compiler/passes/patterns/fuse_moves.h"

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
  std::string body;                           // computes r [N, 4] from x [N, 3, 4], ids [N, 3], w [8, 4], table [6, 4]
  int64_t slices = 0, transposes = 0;         // in a prediction
  int64_t slice_grads = 0, gather_grads = 0;  // in a training step
};

// The nodes after `c`, a reordered w, in the cases with slices.
const std::string kLayer =
    " t = Transpose <perm = [1, 0]> (c)\n p = MatMul (x, t)\n m = ReduceMean <keepdims = 0, axes = [1]> (p)\n"
    " r = MatMul (m, w)\n";

const Case kCases[] = {
    {"gates in another order",
     " i = Slice (w, zero, two, zero)\n fg = Slice (w, two, six, zero)\n o = Slice (w, six, eight, zero)\n"
     " c = Concat <axis = 0> (i, o, fg)\n" +
         kLayer},
    {"ends that are counted from the end, and past it",
     " a = Slice (w, minus_two, large, zero)\n b = Slice (w, zero, minus_two, zero, one)\n c = Concat <axis = 0> (a, b)\n" + kLayer},
    {"slices that overlap",
     " a = Slice (w, zero, six, zero)\n b = Slice (w, six, eight, zero)\n c = Concat <axis = 0> (a, a, b)\n"
     " t = Transpose <perm = [1, 0]> (c)\n p = MatMul (x, t)\n m = ReduceMean <keepdims = 0, axes = [1]> (p)\n"
     " mm = Slice (m, zero, eight, one)\n r = MatMul (mm, w)\n",
     3, 0, 3},
    {"slices that leave something out",
     " a = Slice (w, zero, two, zero)\n b = Slice (w, two, six, zero)\n c = Concat <axis = 0> (b, a)\n"
     " t = Transpose <perm = [1, 0]> (c)\n p = MatMul (x, t)\n m = ReduceMean <keepdims = 0, axes = [1]> (p)\n"
     " h = Slice (w, zero, six, zero)\n r = MatMul (m, h)\n",
     3, 0, 3},
    {"single elements in another order",
     " a = Slice (x, zero, one, two)\n b = Slice (x, one, large, two)\n c = Concat <axis = 2> (b, a)\n p = MatMul (c, k)\n"
     " r = ReduceMean <keepdims = 0, axes = [1]> (p)\n",
     2},
    {"rows of a table, time first",
     " e = Gather (table, ids)\n s = Transpose <perm = [1, 0, 2]> (e)\n q = Mul (s, s)\n r = ReduceMean <keepdims = 0, axes = [0]> (q)\n",
     0, 1, 0, 1},
    {"the last time of a sequence", " s = Transpose <perm = [1, 0, 2]> (h3)\n r = Gather <axis = 0> (s, last)\n", 0, 0, 0, 1},
    {"two places of an axis that was first",
     " s = Transpose <perm = [2, 0, 1]> (h3)\n g = Gather <axis = 0> (s, pair)\n b = Transpose <perm = [1, 2, 0]> (g)\n"
     " f = ReduceMean <keepdims = 0, axes = [1]> (b)\n r = Concat <axis = 1> (f, f)\n",
     0, 2, 0, 1},
    {"a transposition that is read twice",
     " s = Transpose <perm = [1, 0, 2]> (h3)\n l = Gather <axis = 0> (s, last)\n n = ReduceMean <keepdims = 0, axes = [0]> (s)\n"
     " r = Add (l, n)\n",
     0, 1, 0, 1},
};

std::string Net(const Case& c, std::mt19937& random) {
  return "g (float[N, 3, 4] x, int64[N, 3] ids) => (float[N, 2] z)\n<" + Weights(random, "w", {8, 4}) + ",\n" +
         Weights(random, "table", {6, 4}) + ",\n" + Weights(random, "k", {4, 4}) + ",\n" + Weights(random, "v", {4, 2}) +
         ",\nint64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] six = {6}, int64[1] eight = {8}, int64[1] minus_two = "
         "{-2},"
         "\nint64[1] large = {9223372036854775807}, int64 last = {-1}, int64[2] pair = {3, 1}>\n{\n h3 = MatMul (x, k)\n" +
         c.body + " z = MatMul (r, v)\n}\n";
}

TEST(FuseMoves, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(12);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 2; ++i) {
      Tensor ids(DType::kInt64, Shape{5, 3});
      for (int64_t& id : ids.as<int64_t>()) id = static_cast<int64_t>(random() % 6);
      batches.push_back({{"x", Random(random, Shape{5, 3, 4})}, {"ids", std::move(ids)}, {"target", Classes(random, 5, 2)}});
    }
    // Counted without concat_gradients, which would concatenate the gradients of slices.
    const auto look = [&](const CompileOptions& options) {
      CompileOptions predict = options;
      predict.entries = {{EntryKind::kPredict, 5}};
      const Plan plan = Compile(model, predict), step = Compile(model, options);
      EXPECT_EQ(Count(plan, "Slice"), c.slices);
      EXPECT_EQ(Count(plan, "Transpose"), c.transposes);
      EXPECT_EQ(Count(step, "SliceGrad"), c.slice_grads);
      EXPECT_EQ(Count(step, "GatherGrad"), c.gather_grads);
    };
    ExpectSameWithout("fuse_moves", model, batches, 1e-4, look, {"concat_gradients"});
  }
}

}  // namespace
}  // namespace gradloom

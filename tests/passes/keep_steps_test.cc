// A gradient that is given the forward pass's steps computes the bits that it computes by itself.
#include "compiler/passes/keep_steps.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Case {
  std::string op, attributes;
  int64_t gates, directions;
  bool reads_y = true;  // besides the last state
};

const Case kCases[] = {
    {"LSTM", "hidden_size = 5", 4, 1},
    {"LSTM", "hidden_size = 5, direction = \"bidirectional\"", 4, 2, false},
    {"GRU", "hidden_size = 5, direction = \"reverse\"", 3, 1},
    {"GRU", "hidden_size = 5, direction = \"bidirectional\", linear_before_reset = 1", 3, 2, false},
    {"RNN", "hidden_size = 5, direction = \"bidirectional\"", 1, 2, false},
    {"RNN", "hidden_size = 5, activations = [\"Relu\"]", 1, 1},
};

// x [N, 4, 3], from which come [N, directions * 5] and then 2 classes.
std::string Net(const Case& c, std::mt19937& random) {
  const int64_t d = c.directions, width = c.gates * 5;
  return "g (float[N, 4, 3] x) => (float[N, 2] z)\n<" + Weights(random, "w", {d, width, 3}) + ",\n" + Weights(random, "r", {d, width, 5}) +
         ",\n" + Weights(random, "b", {d, 2 * width}) + ",\n" + Weights(random, "v", {d * 5, 2}) +
         ",\nint64[1] first = {0}, int64[2] flat = {0, -1}> {\n  t = Transpose <perm = [1, 0, 2]> (x)\n  y, h = " + c.op + " <" +
         c.attributes + "> (t, w, r, b)\n" +
         (c.reads_y ? "  sum = ReduceSum <keepdims = 0> (y, first)\n  all = Add (sum, h)\n" : "  all = Identity (h)\n") +
         "  samples = Transpose <perm = [1, 0, 2]> (all)\n  rows = Reshape (samples, flat)\n  z = MatMul (rows, v)\n}\n";
}

TEST(KeepSteps, GivesTheSameBits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.op + " " + c.attributes);
    std::mt19937 random(5);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{6, 4, 3})}, {"target", Classes(random, 6, 2)}});
    for (int devices : {1, 2}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {6});
      EXPECT_EQ(Count(Compile(model, options), c.op == "RNN" ? "RNN" : c.op == "GRU" ? "GruTraining" : "LstmTraining"), 1);
      const auto kept = Train(model, options, batches);
      ExpectSameBits(kept, Train(model, options, batches, 9));
      options.control.disabled = {"keep_steps"};
      EXPECT_EQ(Count(Compile(model, options), c.op), 1);
      ExpectSameBits(kept, Train(model, options, batches));
    }
  }
}

TEST(KeepSteps, LeavesHalvesAndOtherKernelsAlone) {
  std::mt19937 random(5);
  for (const char* attributes : {"hidden_size = 5", "hidden_size = 5, clip = 0.5"}) {
    const Case c{"LSTM", attributes, 4, 1};
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {6});
    if (std::string(attributes) == "hidden_size = 5") options.recipe.precision = Precision::kBfloat16;
    EXPECT_EQ(Count(Compile(ModelOf(Net(c, random)), options), "LSTM"), 1) << attributes;
  }
}

}  // namespace
}  // namespace gradloom

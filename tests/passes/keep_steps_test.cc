// A gradient that uses steps saved by the forward pass computes the same bits as one that recomputes them.
#include "compiler/passes/fusion/keep_steps.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/recurrent_net.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

const RecurrentCase kCases[] = {
    {"LSTM", "", 4, 1, true, 5},
    {"LSTM", ", direction = \"bidirectional\"", 4, 2, false, 5},
    {"GRU", ", direction = \"reverse\"", 3, 1, true, 5},
    {"GRU", ", direction = \"bidirectional\", linear_before_reset = 1", 3, 2, false, 5},
    {"RNN", ", direction = \"bidirectional\"", 1, 2, true, 5},
    {"RNN", ", activations = [\"Relu\"]", 1, 1, true, 5},
};

TEST(KeepSteps, KeepsBits) {
  for (const RecurrentCase& c : kCases) {
    SCOPED_TRACE(c.op + " " + c.attributes);
    std::mt19937 random(5);
    const Model model = ModelOf(RecurrentNet(c, random));
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

TEST(KeepSteps, Leaves16BitsAndOtherKernelsAlone) {
  std::mt19937 random(5);
  for (const std::string attributes : {"", ", clip = 0.5"}) {
    const RecurrentCase c{"LSTM", attributes, 4, 1};
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {6});
    if (attributes.empty()) options.recipe.precision = Precision::kBfloat16;
    EXPECT_EQ(Count(Compile(ModelOf(RecurrentNet(c, random)), options), "LSTM"), 1) << attributes;
  }
}

}  // namespace
}  // namespace gradloom

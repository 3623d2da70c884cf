// What depends only on weights has memory of its own in predictions and evaluations, so that it is computed once.
#include "compiler/passes/memory/kept_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/settled.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Three layers whose weights are transposed products of others, and whose activations are as large as these, so that memory is reused.
Model Net(std::mt19937& random) {
  std::string weights, body;
  std::string x = "x";
  for (const char* layer : {"1", "2", "3"}) {
    const std::string n = layer;
    weights += (weights.empty() ? "" : ", ") + Weights(random, "a" + n, {16, 16}, 0.4F) + ", " + Weights(random, "b" + n, {16, 16}, 0.4F);
    body +=
        "  w" + n + " = MatMul (a" + n + ", b" + n + ")\n  h" + n + " = MatMul (" + x + ", w" + n + ")\n  r" + n + " = Tanh (h" + n + ")\n";
    x = "r" + n;
  }
  return ModelOf("net (float[N, 16] x) => (float[N, 16] z) <" + weights + "> {\n" + body + "  z = Identity (r3)\n}");
}

CompileOptions OptionsFor(EntryKind kind, int64_t rows) {
  CompileOptions options = gradloom::OptionsFor({{.type = "mse", .output = "z", .target = "t"}}, 1, {});
  options.entries = {{kind, rows}};
  return options;
}

int64_t Settled(const Plan& plan) {
  const std::vector<bool> settled = SettledInstructions(plan, 0, 0);
  return std::count(settled.begin(), settled.end(), true);
}

TEST(KeptValues, PredictionsAndEvaluations) {
  std::mt19937 random(4);
  const Model model = Net(random);
  const Batch batch{{"x", Random(random, Shape{16, 16})}};
  for (const int streams : {1, 2}) {
    SCOPED_TRACE(streams);
    CompileOptions options = OptionsFor(EntryKind::kPredict, 16);
    options.recipe.streams = streams;
    const auto kept = std::make_shared<const Plan>(Compile(model, options));
    options.recipe.keep_settled = false;
    const auto reused = std::make_shared<const Plan>(Compile(model, options));
    EXPECT_EQ(Settled(*kept), 3);
    if (streams == 1) {
      EXPECT_LT(Settled(*reused), 3);
      EXPECT_GT(kept->programs[0].transient_bytes, reused->programs[0].transient_bytes);
    }
    Session session(kept);
    const auto want = Session(reused).Predict(Views(batch));
    for (int run = 0; run < 3; ++run) ExpectSameBits(want, session.Predict(Views(batch)));
  }
  EXPECT_EQ(Settled(Compile(model, OptionsFor(EntryKind::kEval, 16))), 3);
  // A step that trains changes the weights.
  EXPECT_EQ(Settled(Compile(model, OptionsFor(EntryKind::kStep, 16))), 0);
}

int64_t BytesOf(const Plan& plan) { return ReportMemory(plan, 0).fullest().total_bytes(); }

// They count in the limit, and as many are kept as fit.
TEST(KeptValues, FitTheMemoryLimit) {
  std::mt19937 random(4);
  const Model model = Net(random);
  const Batch batch{{"x", Random(random, Shape{16, 16})}};
  CompileOptions options = OptionsFor(EntryKind::kPredict, 16);
  const auto all = std::make_shared<const Plan>(Compile(model, options));
  const auto want = Session(all).Predict(Views(batch));
  options.recipe.keep_settled = false;
  const int64_t least = BytesOf(Compile(model, options)), most = BytesOf(*all);
  ASSERT_LT(least, most);
  options.recipe.keep_settled = true;
  std::vector<int64_t> settled;
  for (const int64_t limit : {most, (least + most) / 2, least}) {
    options.recipe.memory_limit = limit;
    const auto plan = std::make_shared<const Plan>(Compile(model, options));
    EXPECT_LE(BytesOf(*plan), limit);
    settled.push_back(Settled(*plan));
    Session session(plan);
    for (int run = 0; run < 3; ++run) ExpectSameBits(want, session.Predict(Views(batch)));
  }
  EXPECT_EQ(settled[0], 3);
  EXPECT_GT(settled[0], settled[1]);
  EXPECT_GE(settled[1], settled[2]);
}

// What an entry keeps is given up for the constants of a later one.
TEST(KeptValues, LeaveRoomForConstantsOfLaterEntries) {
  std::mt19937 random(4);
  const Model model = ModelOf("net (float[N, 16] x) => (float[N, 16] z) <" + Weights(random, "a", {16, 16}, 0.4F) + ", " +
                              Weights(random, "b", {16, 16}, 0.4F) + R"(> {
  w = MatMul (a, b)
  h = MatMul (x, w)
  r = Tanh (h)
  g = MatMul (r, a)
  extents = Shape (g)
  count = ReduceProd <keepdims = 0> (extents)
  start = Constant <value_int = 0> ()
  step = Constant <value_int = 1> ()
  numbers = Range (start, count, step)
  shaped = Reshape (numbers, extents)
  places = Cast <to = 1> (shaped)
  z = Add (g, places)
})");
  CompileOptions options = OptionsFor(EntryKind::kPredict, 64);
  const int64_t first = BytesOf(Compile(model, options));
  options.entries.push_back({EntryKind::kPredict, 8});
  const Plan all = Compile(model, options);
  ASSERT_GT(BytesOf(all), first);
  options.recipe.memory_limit = BytesOf(all) - 1;
  EXPECT_LE(BytesOf(Compile(model, options)), options.recipe.memory_limit);
}

// A loop overwrites its initial values, so they are made again in each run.
TEST(KeptValues, NotTheInitialValuesOfLoops) {
  std::mt19937 random(5);
  const Model model = ModelOf("net (float[N, 16] x) => (float[N, 16] z) <" + Weights(random, "a", {16, 16}, 0.4F) + ", " +
                              Weights(random, "b", {16, 16}, 0.4F) + R"(> {
  start = MatMul (a, b)
  high = Constant <value_float = 0.1> ()
  first = ReduceMax <keepdims = 0> (start)
  going = Less (high, first)
  w = Loop (, going, start) <body = halve (int64 i, bool yes, float[16, 16] s) => (bool again, float[16, 16] t) {
    half = Constant <value_float = 0.5> ()
    limit = Constant <value_float = 0.1> ()
    t = Mul (s, half)
    most = ReduceMax <keepdims = 0> (t)
    again = Less (limit, most)
  }>
  z = MatMul (x, w)
})");
  const Batch batch{{"x", Random(random, Shape{16, 16})}};
  Session session(std::make_shared<const Plan>(Compile(model, OptionsFor(EntryKind::kPredict, 16))));
  const auto want = session.Predict(Views(batch));
  for (int run = 0; run < 3; ++run) ExpectSameBits(want, session.Predict(Views(batch)));
}

}  // namespace
}  // namespace gradloom

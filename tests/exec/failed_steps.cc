#include "tests/exec/failed_steps.h"

#include <map>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/exec/executor.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr int64_t kWords = 6, kClasses = 3;

constexpr char kStatistics[] =
    "float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float[4] m1 = {0, 0, 0, 0}, float[4] v1 = {1, 1, 1, 1},"
    "\nfloat[4] m2 = {0, 0, 0, 0}, float[4] v2 = {1, 1, 1, 1}";

// Rows of a table, normalized twice; then other rows, gathered after the normalization; two losses, one of which does not depend on that.
Model Net() {
  std::mt19937 random(3);
  return ModelOf("g (int64[N] word, int64[N] other) => (float[N, 3] z, float[N, 3] w)\n<" + Weights(random, "table", {kWords, 4}) + ", " +
                 Weights(random, "late", {kWords, 4}) + ", " + Weights(random, "u", {4, kClasses}) + ", " +
                 Weights(random, "v", {4, kClasses}) + ",\n" + kStatistics +
                 ">\n{\n x = Gather (table, word)\n h = BatchNormalization <momentum = 0.5> (x, s, b, m1, v1)\n"
                 " r = Relu (h)\n n = BatchNormalization <momentum = 0.5> (r, s, b, m2, v2)\n"
                 " z = MatMul (n, u)\n y = Gather (late, other)\n q = Add (n, y)\n w = MatMul (q, v)\n}\n");
}

// A number gathered within a branch, and one that a loop increases until it exceeds a limit. The loop has a bound because its gradient
// saves the value of each iteration.
Model DecidingNet() {
  std::mt19937 random(4);
  return ModelOf("g (float[N, 4] x, int64 i, float growth) => (float[N, 3] z)\n<" + Weights(random, "u", {4, kClasses}) + ", " +
                 Weights(random, "scales", {kWords}) + ", int64 nine = {9}, float none = {0}, bool yes = {1}, float ten = {10}, " +
                 kStatistics +
                 ">\n{\n h = BatchNormalization <momentum = 0.5> (x, s, b, m1, v1)\n inside = Less (i, nine)\n"
                 " c = If (inside) <then_branch = t () => (float a) { a = Gather (scales, i) },"
                 " else_branch = e () => (float a) { a = Identity (none) }>\n"
                 " mean = ReduceMean <keepdims = 0> (scales)\n begin = Exp (mean)\n d = Loop (, yes, begin) <body = l (int64 k, bool "
                 "going, float p) => (bool again, float q)"
                 " { r = Softplus (p) q = Mul (r, growth) again = Less (q, ten) }>\n"
                 " e = Log (d)\n f = Add (c, e)\n o = MatMul (h, u)\n z = Mul (o, f)\n}\n");
}

Batch Good(const FailedStepCase& c, std::mt19937& random) {
  Batch batch;
  batch.emplace("first", Classes(random, c.samples, kClasses));
  if (c.decides) {
    batch.emplace("x", Random(random, {c.samples, 4}));
    batch.emplace("i", Tensor::Scalar<int64_t>(static_cast<int64_t>(random() % kWords)));
    batch.emplace("growth", Tensor::Scalar<float>(2));
    return batch;
  }
  for (const char* words : {"word", "other"}) batch.emplace(words, Classes(random, c.samples, kWords));
  batch.emplace("second", Classes(random, c.samples, kClasses));
  return batch;
}

// A defect of a batch: its name, and a function that introduces it.
using Flaw = std::pair<std::string, std::function<void(Batch&)>>;

std::vector<Flaw> Flaws(const FailedStepCase& c) {
  std::vector<Flaw> flaws;
  const auto outside = [&](const std::string& feed, const std::vector<int64_t>& samples) {
    std::string name = feed + " of sample";
    for (int64_t sample : samples) name += " " + std::to_string(sample);
    flaws.emplace_back(name, [=](Batch& batch) {
      for (int64_t sample : samples) batch.at(feed).as<int64_t>()[static_cast<size_t>(sample)] = kWords + 1;
    });
  };
  if (c.decides) {
    outside("first", {0});
    outside("i", {0});
    // The loop runs past its bound.
    flaws.emplace_back("no growth", [](Batch& batch) { batch.at("growth") = Tensor::Scalar<float>(0); });
    return flaws;
  }
  for (const char* feed : {"word", "other", "first", "second"}) {
    outside(feed, {0});
    outside(feed, {c.samples - 1});
    // The cases for several devices.
    outside(feed, {0, c.samples - 1});
  }
  return flaws;
}

CompileOptions OptionsOf(const FailedStepCase& c) {
  std::vector<LossTerm> losses = {{.type = "cross_entropy", .output = "z", .target = "first"}};
  if (!c.decides) losses.push_back({.type = "cross_entropy", .output = "w", .target = "second"});
  CompileOptions options = OptionsFor(std::move(losses), c.devices, {c.samples});
  options.recipe.streams = c.streams;
  c.change(options);
  return options;
}

// By name: the state on every device that holds it, byte for byte.
std::map<std::string, std::string> StateOf(Session& session) {
  std::map<std::string, std::string> bytes;
  const StateArena& arena = session.executor().state();
  for (const StateTensor& state : session.plan().state) {
    for (size_t rank = 0; rank < arena.ranks(); ++rank) {
      if (!state.in_place(session.plan().PlaceOf(rank))) continue;
      const Tensor held = arena.GetOf(rank, state);
      bytes.emplace(state.name + " of device " + std::to_string(rank),
                    std::string(static_cast<const char*>(held.data()), static_cast<size_t>(held.bytes())));
    }
  }
  return bytes;
}

}  // namespace

void ExpectFailedStepsChangeNothing(const FailedStepCase& c, const ExecutorOptions& options, bool chaos) {
  SCOPED_TRACE(c.name);
  const auto plan = std::make_shared<const Plan>(Compile(c.decides ? DecidingNet() : Net(), OptionsOf(c)));
  Session session(plan, {.executor = options}), undisturbed(plan, {.executor = options});
  std::mt19937 random(11);
  for (uint64_t round = 0; round < 6; ++round) {
    const Batch good = Good(c, random);
    session.Step(Views(good));
    undisturbed.Step(Views(good));
    for (const auto& [what, spoil] : Flaws(c)) {
      SCOPED_TRACE(what);
      Batch bad = Good(c, random);
      spoil(bad);
      if (chaos) session.executor().SetChaos(random());
      const auto before = StateOf(session);
      try {
        session.Step(Views(bad));
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kData) << error.Describe();
      }
      for (const auto& [name, bytes] : StateOf(session)) EXPECT_TRUE(bytes == before.at(name)) << name << " has changed";
    }
  }
  // The position as well, since the learning rate and random numbers depend on it.
  EXPECT_EQ(session.step(), undisturbed.step());
  EXPECT_EQ(session.batch(), undisturbed.batch());
  EXPECT_TRUE(StateOf(session) == StateOf(undisturbed));
}

}  // namespace gradloom

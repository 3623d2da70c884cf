// Runs that leave out what depends only on weights give the same as those that compute it: whoever changes the weights, and whatever runs
// in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/settled.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kRows = 4;

// The factor of the normalization depends on weights alone, and so does the table times a weight.
Model Net(std::mt19937& random) {
  return ModelOf("net (float[N, 8, 6, 6] x, int64[N] word) => (float[N, 3] z)\n<" + Weights(random, "w", {8, 8, 3, 3}) + ", " +
                 Weights(random, "scale", {8}) + ", " + Weights(random, "bias", {8}) + ", " + Weights(random, "table", {5, 8}) + ", " +
                 Weights(random, "turn", {8, 8}) + ", " + Weights(random, "u", {8, 3}) +
                 R"(, float[8] mean = {0, 1, 0, -2, 0, 0, 0.5, 0}, float[8] var = {1, 1, 4, 1, 0.25, 1, 1, 1}> {
  h = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  n, m, v = BatchNormalization <training_mode = 1> (h, scale, bias, mean, var)
  r = Relu (n)
  p = GlobalAveragePool (r)
  f = Flatten (p)
  turned = MatMul (table, turn)
  words = Gather (turned, word)
  both = Add (f, words)
  z = MatMul (both, u)
})");
}

Batch Inputs(std::mt19937& random, int64_t rows) {
  Batch batch{{"x", Random(random, Shape{rows, 8, 6, 6})}};
  batch.emplace("word", Classes(random, rows, 5));
  return batch;
}

Batch Labelled(std::mt19937& random) {
  Batch batch = Inputs(random, kRows);
  batch.emplace("target", Classes(random, kRows, 3));
  return batch;
}

struct Runs {
  std::shared_ptr<const Plan> plan;
  Session session;
  std::mt19937 random{7};

  explicit Runs(std::shared_ptr<const Plan> made) : plan(std::move(made)), session(plan) {}

  // A prediction by the session, compared with that of a new one with the same state.
  void Predict(int64_t rows = kRows) {
    const Batch batch = Inputs(random, rows);
    Session fresh(plan);
    for (const StateTensor& state : plan->state) {
      if (!state.derived()) fresh.Set(state.name, session.Get(state.name).view());
    }
    ExpectSameBits(fresh.Predict(Views(batch)), session.Predict(Views(batch)));
  }
  void Step() { session.Step(Views(Labelled(random))); }
  void Change(const std::string& state) {
    Tensor value = session.Get(state);
    for (float& element : value.as<float>()) element = element * 1.5F + 0.1F;
    session.Set(state, value.view());
  }
};

std::shared_ptr<const Plan> PlanOn(int devices, int streams = 1) {
  std::mt19937 random(3);
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {kRows});
  options.recipe.streams = streams;
  options.entries.push_back({EntryKind::kPredict, kRows});
  options.entries.push_back({EntryKind::kPredict, 2});
  options.entries.push_back({EntryKind::kEval, kRows});
  return std::make_shared<const Plan>(Compile(Net(random), options));
}

class SettledSteps : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(SettledSteps, FollowTheWeights) {
  Runs runs(PlanOn(GetParam().first, GetParam().second));
  const std::function<void()> changes[] = {
      [] {},
      [&] { runs.Change("w"); },
      [&] { runs.Change("scale"); },
      [&] { runs.Change("var"); },
      [&] { runs.Change("turn"); },
      [&] { runs.Step(); },
      [&] { runs.Predict(2); },
      [&] { runs.session.Evaluate(Views(Labelled(runs.random))); },
      [&] { runs.session.ReleaseMemory(); },
      [&] { runs.session.KeepState(), runs.Change("scale"), runs.Predict(), runs.session.UndoStep(); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    SCOPED_TRACE(i);
    changes[i]();
    for (int run = 0; run < 3; ++run) runs.Predict();
  }
}

// A run that fails may have been in the middle of anything.
TEST_P(SettledSteps, AfterAFailure) {
  Runs runs(PlanOn(GetParam().first, GetParam().second));
  for (int i = 0; i < 2; ++i) {
    Batch bad = Inputs(runs.random, kRows);
    bad.at("word").as<int64_t>()[1] = 99;
    EXPECT_THROW(runs.session.Predict(Views(bad)), Error);
    runs.Predict();
    runs.Change("turn");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SettledSteps, testing::Values(std::pair(1, 1), std::pair(1, 2), std::pair(2, 1)), [](const auto& tested) {
  return std::to_string(tested.param.first) + "devices" + std::to_string(tested.param.second) + "streams";
});

// They are left out indeed, and only then.
TEST(SettledStepsOf, OneDevice) {
  Runs runs(PlanOn(1));
  const int entry = runs.plan->FindEntry(EntryKind::kPredict, kRows);
  const int program = runs.plan->entries[static_cast<size_t>(entry)].ranks[0].program;
  const std::vector<bool> settled = SettledInstructions(*runs.plan, static_cast<size_t>(entry), 0);
  const auto launches = [&](size_t i) {
    return runs.plan->programs[static_cast<size_t>(program)].instructions[i].kind == InstructionKind::kLaunch;
  };
  ASSERT_GE(std::count(settled.begin(), settled.end(), true), 2);
  Executor& executor = runs.session.executor();
  executor.set_timed(true);
  const Batch batch = Inputs(runs.random, kRows);
  const auto predict = [&] {
    runs.session.Predict(Views(batch));
    return executor.nanoseconds(program);
  };
  std::vector<int64_t> before = predict();
  for (const bool repeats : {true, true, false, true}) {
    if (!repeats) runs.Change("scale");
    const std::vector<int64_t> now = predict();
    for (size_t i = 0; i < now.size(); ++i) {
      if (launches(i)) {
        EXPECT_EQ(now[i] == before[i], repeats && settled[i]) << i << " " << repeats;
      }
    }
    before = now;
  }
  // A step that trains has none of its weights settled.
  const int step = runs.plan->FindEntry(EntryKind::kStep, kRows);
  const Program& trains = runs.plan->programs[static_cast<size_t>(runs.plan->entries[static_cast<size_t>(step)].ranks[0].program)];
  const std::vector<bool> of_step = SettledInstructions(*runs.plan, static_cast<size_t>(step), 0);
  for (size_t i = 0; i < of_step.size(); ++i) {
    for (const Use& use : trains.instructions[i].uses) {
      const bool reads = use.access == Access::kRead && use.buffer >= 0;
      if (of_step[i] && reads) {
        EXPECT_NE(trains.buffers[static_cast<size_t>(use.buffer)].arena, Arena::kState) << i;
      }
    }
  }
}

// Two executors may share a state: what one of them writes is not settled in the other.
TEST(SettledStepsOf, TwoExecutors) {
  const std::shared_ptr<const Plan> plan = PlanOn(1);
  const std::unique_ptr<Executor> first = Executor::Make(plan), second = Executor::Make(plan, {}, first->shared_state());
  std::mt19937 random(9);
  const Batch batch = Labelled(random);
  const auto run = [&](Executor& executor, EntryKind kind) {
    const int entry = plan->FindEntry(kind, kRows);
    std::vector<TensorView> feeds;
    for (const Feed& feed : plan->entries[static_cast<size_t>(entry)].feeds) feeds.push_back(batch.at(feed.name).view());
    executor.Run(entry, feeds, {.lr = 0.1});
    return std::map<std::string, Tensor>{{"z", Tensor::Copy(executor.Fetched(entry, 0))}};
  };
  run(*first, EntryKind::kPredict);
  run(*first, EntryKind::kPredict);
  run(*second, EntryKind::kStep);
  const auto got = run(*first, EntryKind::kPredict), want = run(*second, EntryKind::kPredict);
  ExpectSameBits(want, got);
}

}  // namespace
}  // namespace gradloom

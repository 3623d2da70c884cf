// Updates of several batches: their samples or the batches have the same weight, and the last one of an epoch has the batches that remain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/update/accumulate.h"
#include "runtime/base/error.h"
#include "runtime/data/dataset.h"
#include "runtime/session/session.h"
#include "runtime/session/trainer.h"
#include "runtime/session/update_rule.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

TEST(UpdateRule, EveryFewBatches) {
  const UpdateRule rule{.accumulate = 3};
  EXPECT_EQ(rule.UpdatesOf(8), 2);
  EXPECT_EQ(rule.BatchesOf(2), 6);
  EXPECT_EQ(rule.Pending(8), 2);
  EXPECT_EQ(rule.BatchesOf(std::numeric_limits<int64_t>::max() / 2), std::numeric_limits<int64_t>::max());
}

TEST(UpdateRule, EndsWithTheEpoch) {
  for (const int64_t accumulate : {1, 2, 3, 4, 7, 9}) {
    const UpdateRule rule{.accumulate = accumulate, .epoch = 7};
    int64_t updates = 0, pending = 0;
    for (int64_t batch = 0; batch < 40; ++batch) {
      EXPECT_EQ(rule.UpdatesOf(batch), updates) << accumulate << " " << batch;
      EXPECT_EQ(rule.Pending(batch), pending) << accumulate << " " << batch;
      if (pending == 0) {
        EXPECT_EQ(rule.BatchesOf(updates), batch) << accumulate;
      }
      const bool ends = pending + 1 == accumulate || (batch + 1) % 7 == 0;
      updates += ends ? 1 : 0;
      pending = ends ? 0 : pending + 1;
    }
    EXPECT_GT(rule.BatchesOf(std::numeric_limits<int64_t>::max()), 0);
  }
}

constexpr char kClassifier[] = R"(
g (float[N, 4] x) => (float[N, 3] z)
<float[4, 5] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, -0.6, 0.8, 0.4, -0.3, 1.1, -0.2, 0.6, -0.9},
 float[5, 3] v = {0.1, -0.2, 0.3, 1, 2, -1, 0.5, 0.2, -0.3, 0.7, -0.5, 0.4, 0.6, -0.8, 0.9}, float[3] b = {0.1, -0.2, 0.3}>
{
  h = MatMul (x, w)
  s = Tanh (h)
  m = MatMul (s, v)
  z = Add (m, b)
}
)";

// An epoch of 26 samples, in batches of this size; the last one has the rest.
constexpr int64_t kRows = 26;

std::vector<Batch> EpochIn(int64_t size) {
  std::mt19937 random(3);
  const Tensor x = Random(random, Shape{kRows, 4}), y = Classes(random, kRows, 3);
  std::vector<Batch> batches;
  for (int64_t first = 0; first < kRows; first += size) {
    const int64_t rows = std::min(size, kRows - first);
    Tensor some(DType::kFloat32, {rows, 4}), classes(DType::kInt64, {rows});
    std::memcpy(some.data(), x.as<float>().data() + first * 4, static_cast<size_t>(some.bytes()));
    std::memcpy(classes.data(), y.as<int64_t>().data() + first, static_cast<size_t>(classes.bytes()));
    Batch& made = batches.emplace_back();
    made.emplace("x", std::move(some));
    made.emplace("y", std::move(classes));
  }
  return batches;
}

using Change = std::function<void(CompileOptions&)>;

std::unique_ptr<Session> SessionFor(int devices, int64_t batch, int64_t accumulate, const Change& change) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, devices, {batch, kRows % batch});
  options.recipe.optimizer = {.type = "momentum", .lr = 0.05, .momentum = 0.9, .clip_norm = 0.3};
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  options.recipe.accumulate = accumulate;
  options.recipe.accumulate_samples = true;
  if (change) change(options);
  auto session = std::make_unique<Session>(std::make_shared<const Plan>(Compile(ModelOf(kClassifier), options)));
  session->set_epoch((kRows + batch - 1) / batch);
  return session;
}

// The norms of the gradients of the updates, and the parameters after them.
std::map<std::string, Tensor> TrainEpochs(Session& session, int64_t batch, int epochs = 2) {
  std::map<std::string, Tensor> results;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const Batch& each : EpochIn(batch)) {
      const StepResult made = session.Step(Views(each));
      if (made.updated) results.emplace("norm@" + std::to_string(made.step), Tensor::Scalar(made.grad_norm));
    }
    EXPECT_EQ(session.accumulated(), 0);
  }
  for (const char* name : {"w", "v", "b", "w/momentum_buffer"}) results.emplace(name, session.Get(name));
  return results;
}

// Four batches of 4 samples make one of 16; the last ones of an epoch, of 4, 4 and 2 samples, make one of 10.
void ExpectLikeWholeBatches(const Change& change) {
  const auto want = TrainEpochs(*SessionFor(1, 16, 1, change), 16);
  for (int devices : {1, 2, 3}) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    const auto session = SessionFor(devices, 4, 4, change);
    ExpectNear(want, TrainEpochs(*session, 4), 1e-5);
    EXPECT_EQ(session->step(), 4);
    EXPECT_EQ(session->batch(), 14);
  }
}

TEST(Updates, OfMicroBatchesAreThoseOfTheirBatch) { ExpectLikeWholeBatches({}); }

TEST(Updates, WithGradientsSummedForEachBatch) {
  ExpectLikeWholeBatches([](CompileOptions& options) { options.recipe.fetch_gradients = true; });
}

TEST(Updates, WithAScaledLoss) {
  ExpectLikeWholeBatches([](CompileOptions& options) { options.recipe.loss_scale = {.initial = 1024, .growth_interval = 1}; });
}

TEST(Updates, OfALossThatIsASum) {
  ExpectLikeWholeBatches([](CompileOptions& options) { options.recipe.losses.front().reduction = "sum"; });
}

// The update of the mean would be divided by the number of samples, that of the sum would not.
TEST(Updates, RefuseASumBesideAMean) {
  const auto losses = [](bool samples) {
    return [samples](CompileOptions& options) {
      options.recipe.losses.push_back({.type = "cross_entropy", .output = "z", .target = "y", .reduction = "sum"});
      options.recipe.accumulate_samples = samples;
    };
  };
  EXPECT_THROW(SessionFor(1, 4, 4, losses(true)), Error);
  EXPECT_NO_THROW(SessionFor(1, 4, 4, losses(false)));
  EXPECT_NO_THROW(SessionFor(1, 4, 1, losses(true)));
}

// Without accumulate_samples: the update of 4 and 2 samples, and any earlier one, is the mean of the gradients of its batches.
TEST(Updates, GiveBatchesTheSameWeight) {
  const auto by_batches = [](CompileOptions& options) {
    options.recipe.accumulate_samples = false;
    options.recipe.optimizer = {.type = "sgd", .lr = 0.05};
    options.recipe.fetch_gradients = true;
  };
  const std::vector<Batch> parts = EpochIn(4);
  const auto whole = SessionFor(1, 4, 1, by_batches);
  std::map<std::string, std::vector<double>> mean;
  for (size_t i : {5U, 6U}) {
    // Each from the initial parameters.
    const auto alone = SessionFor(1, 4, 1, by_batches);
    alone->Step(Views(parts[i]));
    for (const char* name : {"w", "v", "b"}) {
      const Tensor before = whole->Get(name), after = alone->Get(name);
      std::vector<double>& sum = mean[name];
      sum.resize(static_cast<size_t>(before.elements()));
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += (after.as<float>()[j] - before.as<float>()[j]) / 2;
    }
  }
  for (int devices : {1, 2}) {
    const auto both = SessionFor(devices, 4, 2, by_batches);
    for (size_t i : {5U, 6U}) both->Step(Views(parts[i]));
    EXPECT_EQ(both->step(), 1);
    for (const char* name : {"w", "v", "b"}) {
      const Tensor before = whole->Get(name), after = both->Get(name);
      for (size_t j = 0; j < mean[name].size(); ++j) EXPECT_NEAR(after.as<float>()[j] - before.as<float>()[j], mean[name][j], 1e-6) << name;
    }
  }
}

// The batches that remain at the end of an epoch are one sample, which is not divided among devices.
TEST(Updates, OfASingleSample) {
  const auto want = TrainEpochs(*SessionFor(1, 25, 1, {}), 25);
  for (int devices : {1, 2}) ExpectNear(want, TrainEpochs(*SessionFor(devices, 5, 5, {}), 5), 1e-5);
}

// An update does without a batch that was left out, whose samples do not count.
TEST(Updates, WithoutASkippedBatch) {
  const std::vector<Batch> parts = EpochIn(4);
  for (int devices : {1, 2}) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    for (const size_t skipped : {1U, 3U}) {
      const auto some = SessionFor(devices, 4, 4, {}), others = SessionFor(devices, 4, 3, {});
      for (size_t i = 0; i < 4; ++i) {
        if (i == skipped) {
          some->SkipBatch(false);
        } else {
          some->Step(Views(parts[i]));
          others->Step(Views(parts[i]));
        }
      }
      EXPECT_EQ(some->step(), 1);
      EXPECT_EQ(others->step(), 1);
      for (const char* name : {"w", "v", "b"}) ExpectNear({{name, others->Get(name)}}, {{name, some->Get(name)}}, 1e-6);
    }
  }
}

// The batches of an epoch are fewer than those of an update.
TEST(Updates, OncePerEpoch) {
  const auto session = SessionFor(1, 4, 100, {});
  TrainEpochs(*session, 4, 3);
  EXPECT_EQ(session->step(), 3);
}

// A program may have made steps before a trainer, whose epochs end updates. Then the position does not tell how many batches an update has.
TEST(Updates, AreAsFarAsBeforeAnUndoneStep) {
  const std::vector<Batch> parts = EpochIn(4);
  for (int devices : {1, 2}) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    const auto session = SessionFor(devices, 4, 4, {});
    session->set_epoch(0);
    for (size_t i = 0; i < 6; ++i) session->Step(Views(parts[i]));
    EXPECT_EQ(session->accumulated(), 2);
    session->set_epoch(5);
    session->set_accumulated(2);
    session->KeepState();
    session->Step(Views(parts[6]));
    session->UndoStep();
    EXPECT_EQ(session->accumulated(), 2);
    EXPECT_FALSE(session->SkipBatch(false).updated);
    EXPECT_TRUE(session->Step(Views(parts[0])).updated);
    EXPECT_EQ(session->step(), 2);
  }
}

// Without epochs, only the number of batches counts.
TEST(Updates, WithoutEpochs) {
  const auto session = SessionFor(1, 4, 4, {});
  session->set_epoch(0);
  for (const Batch& each : EpochIn(4)) session->Step(Views(each));
  EXPECT_EQ(session->step(), 1);
  EXPECT_EQ(session->accumulated(), 3);
  EXPECT_EQ(session->Get(kAccumulatedWeightState).as<int64_t>()[0], 10);
}

// Epochs end updates as long as the trainer lives, and the batches that it has accumulated remain.
TEST(Updates, OfATrainerEndWithItsEpochs) {
  std::mt19937 random(3);
  const Dataset data({{"x", Random(random, Shape{kRows, 4})}, {"y", Classes(random, kRows, 3)}});
  // Trains three epochs, but stops after this batch.
  const auto train = [&](Session& session, int64_t last) {
    session.set_epoch(0);
    TrainerObserver observer;
    TrainerOptions options{.epochs = 3, .batch = 4, .stop_requested = [&] { return session.batch() == last; }};
    Trainer(session, data, Dataset(), std::move(options), observer).Run();
    EXPECT_EQ(session.batch(), last);
    EXPECT_EQ(session.epoch(), 0);
  };
  const auto whole = SessionFor(1, 4, 4, {}), part = SessionFor(1, 4, 4, {});
  train(*whole, 7);
  EXPECT_EQ(whole->step(), 2);
  for (const Batch& each : EpochIn(4)) whole->Step(Views(each));
  EXPECT_EQ(whole->step(), 3);
  EXPECT_EQ(whole->accumulated(), 3);
  train(*part, 8);
  EXPECT_EQ(part->accumulated(), 1);
}

// The position within an update follows from the counters.
TEST(Updates, ContinueInTheMiddle) {
  const std::vector<Batch> parts = EpochIn(4);
  const auto whole = SessionFor(1, 4, 4, {}), first = SessionFor(1, 4, 4, {}), second = SessionFor(1, 4, 4, {});
  TrainEpochs(*whole, 4);
  for (size_t i = 0; i < 9; ++i) first->Step(Views(parts[i % parts.size()]));
  EXPECT_EQ(first->accumulated(), 2);
  for (const StateTensor& state : first->plan().state) second->Set(state.name, first->Get(state.name).view());
  second->set_position(first->step(), first->batch());
  EXPECT_EQ(second->accumulated(), 2);
  for (size_t i = 9; i < 14; ++i) second->Step(Views(parts[i % parts.size()]));
  EXPECT_EQ(second->step(), whole->step());
  for (const StateTensor& state : whole->plan().state)
    ExpectSameBits({{state.name, whole->Get(state.name)}}, {{state.name, second->Get(state.name)}});
}

}  // namespace
}  // namespace gradloom

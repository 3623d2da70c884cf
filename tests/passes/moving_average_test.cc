// Moving averages of parameters: their values, and who reads them. The recordings ema_* compare them with PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/update/add_optimizer.h"
#include "runtime/plan/average_state.h"
#include "runtime/plan/verify_plan.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kBatch = 12;

// Convolutions that prefer their own layouts, batch normalization with running statistics, and a product.
Model Images(std::mt19937& random) {
  return ModelOf("g (float[N, 3, 9, 7] x) => (float[N, 5] z)\n<" + Weights(random, "w0", {16, 3, 3, 3}) + ",\n" +
                 Weights(random, "b0", {16}) + ",\n" + Weights(random, "scale", {16}) + ",\n" + Weights(random, "shift", {16}) +
                 ",\nfloat[16] mean = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0},\nfloat[16] var = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1},\n" +
                 Weights(random, "w1", {16, 16, 3, 3}, 0.2F) + ",\n" + Weights(random, "w2", {16, 5}) +
                 "> {\n [c1] a = Conv (x, w0, b0)\n [bn] n = BatchNormalization (a, scale, shift, mean, var)\n [r1] b = Relu (n)\n"
                 " [c2] c = Conv <pads = [1, 1, 1, 1]> (b, w1)\n [p] e = GlobalAveragePool (c)\n [f] f = Flatten (e)\n"
                 " [fc] z = MatMul (f, w2)\n}\n");
}

std::vector<Batch> Pictures(std::mt19937& random, int count, int64_t size = kBatch) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back({{"x", Random(random, Shape{size, 3, 9, 7})}, {"target", Classes(random, size, 5)}});
  return batches;
}

CompileOptions Options(std::optional<double> ema, int devices = 1) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {kBatch});
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  options.recipe.optimizer.ema = ema;
  options.entries.push_back({EntryKind::kEval, kBatch});
  options.entries.push_back({EntryKind::kPredict, kBatch});
  return options;
}

Session Start(const Model& model, const CompileOptions& options) { return Session(std::make_shared<const Plan>(Compile(model, options))); }

std::vector<std::string> Parameters(const Session& session) {
  std::vector<std::string> names;
  for (const StateTensor& state : session.plan().state) {
    if (state.kind == StateKind::kParameter) names.push_back(state.name);
  }
  return names;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(MovingAverage, FollowsTheParameters) {
  for (const std::string& optimizer : OptimizerTypes()) {
    for (const bool warmup : {false, true}) {
      for (const double decay : {0.0, 0.25, 0.9}) {
        SCOPED_TRACE(optimizer + ", decay " + std::to_string(decay) + (warmup ? ", warm-up" : ""));
        std::mt19937 random(4);
        const Model model = Images(random);
        CompileOptions options = Options(decay), without = Options({});
        options.recipe.optimizer.ema_warmup = warmup;
        for (CompileOptions* each : {&options, &without}) {
          each->recipe.optimizer.type = optimizer;
          each->recipe.optimizer.momentum = 0.9;
          each->recipe.optimizer.centered = true;
        }
        Session session = Start(model, options), plain = Start(model, without);
        std::map<std::string, std::vector<double>> averages;
        int64_t updates = 0;
        for (const Batch& batch : Pictures(random, 5)) {
          session.Step(Views(batch));
          plain.Step(Views(batch));
          const double rising = (1.0 + static_cast<double>(updates)) / (10.0 + static_cast<double>(updates));
          const double kept = updates == 0 ? 0 : warmup ? std::min(rising, decay) : decay;
          ++updates;
          for (const std::string& name : Parameters(session)) {
            const Tensor value = session.Get(name), average = session.Get(AverageOf(name));
            EXPECT_TRUE(SameBits(value, plain.Get(name))) << name << " is updated in another way than without averages";
            std::vector<double>& want = averages[name];
            want.resize(static_cast<size_t>(value.elements()));
            for (size_t i = 0; i < want.size(); ++i) {
              want[i] = kept * want[i] + (1 - kept) * ElementAsDouble(value.view(), static_cast<int64_t>(i));
              ASSERT_NEAR(ElementAsDouble(average.view(), static_cast<int64_t>(i)), want[i], 2e-6 * std::max(1.0, std::abs(want[i])))
                  << name << " " << i << " after update " << updates;
            }
            if (kept == 0) {
              EXPECT_TRUE(SameBits(value, average)) << name;
            }
          }
        }
      }
    }
  }
}

// Loss and outputs are those of a plan without averages whose parameters are the averages.
void ExpectReadByEvaluations(const std::function<void(CompileOptions&)>& change) {
  std::mt19937 random(5);
  const Model model = Images(random);
  CompileOptions options = Options(0.8), without = Options({});
  change(options);
  change(without);
  Session session = Start(model, options), plain = Start(model, without);
  const std::vector<Batch> batches = Pictures(random, 4);
  for (const Batch& batch : batches) session.Step(Views(batch));
  for (const StateTensor& state : plain.plan().state) {
    if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic)
      plain.Set(state.name, session.Get(session.TrainedState(state.name)).view());
  }
  const Feeds& feeds = Views(batches[0]);
  const auto got = session.Evaluate(feeds), want = plain.Evaluate(feeds);
  EXPECT_TRUE(SameBits(got.at("loss"), want.at("loss")))
      << ElementAsDouble(got.at("loss").view(), 0) << " for " << ElementAsDouble(want.at("loss").view(), 0);
  const Feeds inputs{{"x", batches[0].at("x").view()}};
  EXPECT_TRUE(SameBits(session.Predict(inputs).at("z"), plain.Predict(inputs).at("z")));
  for (const std::string& name : Parameters(session)) session.Set(name, session.Get(AverageOf(name)).view());
  EXPECT_TRUE(SameBits(session.Predict(inputs).at("z"), plain.Predict(inputs).at("z")))
      << "a prediction depends on the parameters themselves";
}

TEST(MovingAverage, IsReadByEvaluations) {
  ExpectReadByEvaluations([](CompileOptions&) {});
}
TEST(MovingAverage, IsReadByEvaluationsOfSeveralDevices) {
  ExpectReadByEvaluations([](CompileOptions& options) { options.recipe.devices = 3; });
}
TEST(MovingAverage, IsReadByEvaluationsOfPlacedWeights) {
  ExpectReadByEvaluations([](CompileOptions& options) {
    options.recipe.devices = 2;
    options.recipe.place = {{"w1", 1}, {"w2", 1}};
  });
}
TEST(MovingAverage, IsReadByEvaluationsIn16Bits) {
  ExpectReadByEvaluations([](CompileOptions& options) { options.recipe.precision = Precision::kBfloat16; });
}
TEST(MovingAverage, IsReadByEvaluationsOfAccumulatedUpdates) {
  ExpectReadByEvaluations([](CompileOptions& options) { options.recipe.accumulate = 2; });
}

TEST(MovingAverage, IsReadByEntriesThatAreAddedLater) {
  std::mt19937 random(6);
  const Model model = Images(random);
  const CompileOptions options = Options(0.5);
  const Plan plan = Compile(model, options), extended = AddEntry(model, options, plan, {EntryKind::kEval, 5});
  Session session(std::make_shared<const Plan>(extended));
  for (const Batch& batch : Pictures(random, 3)) session.Step(Views(batch));
  const Batch five = Pictures(random, 1, 5)[0];
  const Tensor with_averages = Tensor::Copy(session.Evaluate(Views(five)).at("loss").view());
  for (const std::string& name : Parameters(session)) session.Set(name, Tensor(DType::kFloat32, session.Get(name).shape()).view());
  EXPECT_TRUE(SameBits(session.Evaluate(Views(five)).at("loss"), with_averages)) << "it depends on the parameters themselves";
}

// A scaled gradient that is not finite changes neither parameter nor average, and is not counted.
TEST(MovingAverage, IsNotMovedBySkippedUpdates) {
  std::mt19937 random(7);
  const Model model = Images(random);
  CompileOptions options = Options(0.5);
  options.recipe.loss_scale = {.initial = 0x1p90, .dynamic = true};
  Session session = Start(model, options);
  const Batch batch = Pictures(random, 1)[0];
  const Tensor before = session.Get("w1/average");
  EXPECT_TRUE(SameBits(before, session.Get("w1")));
  int64_t skipped = 0;
  for (int step = 0; step < 90 && session.loss_scale()->skipped == step; ++step) {
    session.Step(Views(batch));
    if (session.loss_scale()->skipped != step + 1) break;
    ++skipped;
    EXPECT_TRUE(SameBits(before, session.Get("w1/average")));
  }
  ASSERT_GT(skipped, 0);
  EXPECT_FALSE(SameBits(before, session.Get("w1")));
  EXPECT_TRUE(SameBits(session.Get("w1"), session.Get("w1/average"))) << "the first update that is not skipped is the first one";
}

TEST(MovingAverage, BeginsAsTheWeightsThatAreSet) {
  std::mt19937 random(8);
  const Model model = Images(random);
  Session session = Start(model, Options(0.5));
  const Tensor given = Random(random, Shape{16, 5}), later = Random(random, Shape{16, 5});
  session.Set("w2", given.view());
  EXPECT_TRUE(SameBits(session.Get("w2/average"), given));
  session.Step(Views(Pictures(random, 1)[0]));
  const Tensor average = session.Get("w2/average");
  session.Set("w2", later.view());
  EXPECT_TRUE(SameBits(session.Get("w2/average"), average));
  session.Set("w2/average", given.view());
  EXPECT_TRUE(SameBits(session.Get("w2"), later));
}

TEST(MovingAverage, IsProved) {
  std::mt19937 random(9);
  const Plan plan = Compile(Images(random), Options(0.5));
  const int index = plan.FindState("w2/average");
  ASSERT_GE(index, 0);
  const auto refused = [&](const std::function<void(StateTensor&)>& change) {
    Plan changed = plan;
    change(changed.state[static_cast<size_t>(index)]);
    return !Verify(changed).empty();
  };
  EXPECT_FALSE(refused([](StateTensor&) {}));
  EXPECT_TRUE(refused([](StateTensor& average) { average.name = "w2/mean"; }));
  EXPECT_TRUE(refused([](StateTensor& average) { average.parameter = -1; }));
  EXPECT_TRUE(refused([](StateTensor& average) { average.parameter = average.parameter == 0 ? 1 : 0; }));
  EXPECT_TRUE(refused([](StateTensor& average) { average.initial = Tensor(average.dtype, average.shape); }));
  EXPECT_TRUE(refused([](StateTensor& average) { average.shape = Shape{5, 16}; }));
}

TEST(MovingAverage, RefusesOptionsOutOfRange) {
  std::mt19937 random(10);
  const Model model = Images(random);
  for (const double decay : {-0.1, 1.0, 1.5, std::nan("")}) EXPECT_THROW(Compile(model, Options(decay)), Error) << decay;
  CompileOptions only_warmup = Options({});
  only_warmup.recipe.optimizer.ema_warmup = true;
  EXPECT_THROW(Compile(model, only_warmup), Error);
}

}  // namespace
}  // namespace gradloom

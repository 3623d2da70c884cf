// Feeds with several positions of each sample along an axis, as the labels of scores that a model flattens to [batch * positions, classes]:
// a session takes them in the plan's shape and by samples.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>

#include "compiler/compile.h"
#include "runtime/plan/sample_axes.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"
#include "tools/api/compiling_source.h"

namespace gradloom {
namespace {

constexpr int64_t kWindow = 6, kTokens = 5;

// `inside`: the scores have the positions of all samples in turn.
Model TextModel(bool inside) {
  std::mt19937 random(7);
  const std::string last = inside ? "t = Transpose <perm = [1, 0, 2]> (m) z = Reshape (t, flat)" : "z = Reshape (m, flat)";
  return ModelOf("g (int64[N, 6] x) => (float[M, 5] z) <" + Weights(random, "e", Shape{kTokens, 4}) + ", " +
                 Weights(random, "w", Shape{4, kTokens}) +
                 ", int64[2] flat = {-1, 5}> { g = Gather (e, x) h = Tanh (g) m = MatMul (h, w) " + last + " }");
}

// With labels in the plan's shape.
Batch Texts(std::mt19937& random, int64_t size) {
  Batch batch;
  batch.emplace("x", Classes(random, size * kWindow, kTokens).Reshaped(Shape{size, kWindow}));
  batch.emplace("y", Classes(random, size * kWindow, kTokens));
  return batch;
}

Batch BySamples(Batch batch, bool inside) {
  const int64_t size = batch.at("x").shape()[0];
  batch.at("y") = batch.at("y").Reshaped(inside ? Shape{kWindow, size} : Shape{size, kWindow});
  return batch;
}

class Flattened : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Session> Start(int devices) const {
    const Model model = TextModel(GetParam());
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, devices, {4, 1});
    options.entries.push_back({EntryKind::kEval, 4});
    return std::make_unique<Session>(std::make_shared<const Plan>(Compile(model, options)),
                                     SessionOptions{.source = std::make_shared<CompilingSource>(model, options), .executor = {}});
  }
};

TEST_P(Flattened, PlansSayWhereTheSamplesAre) {
  for (const int devices : {1, 2}) {
    const auto session = Start(devices);
    for (const Entry& entry : session->plan().entries) {
      if (entry.kind == EntryKind::kUpdate) continue;
      const Feed& y = entry.feeds[1];
      EXPECT_EQ(y.shape, Shape{entry.batch * kWindow});
      EXPECT_EQ(y.batch_axis, 0);
      EXPECT_EQ(y.batch_inner, GetParam() ? 1 : kWindow);
      const Feed by_samples = gradloom::BySamples(y, entry.batch);
      EXPECT_EQ(by_samples.shape, GetParam() ? (Shape{kWindow, entry.batch}) : (Shape{entry.batch, kWindow})) << entry.batch;
      EXPECT_EQ(by_samples.batch_axis, GetParam() ? 1 : 0);
    }
  }
}

TEST_P(Flattened, BothShapesTrainToTheSameBits) {
  for (const int devices : {1, 2}) {
    std::mt19937 random(3);
    const auto flat = Start(devices), by_samples = Start(devices);
    // A batch of 3 or of 5 is compiled when it comes.
    for (const int64_t size : {4, 1, 3, 4, 5}) {
      const Batch batch = Texts(random, size);
      EXPECT_EQ(flat->Step(Views(batch)).loss, by_samples->Step(Views(BySamples(batch, GetParam()))).loss) << size;
    }
    EXPECT_EQ(by_samples->plan().entries.size(), flat->plan().entries.size());
    for (const char* name : {"e", "w"}) ExpectSameBits({{name, flat->Get(name)}}, {{name, by_samples->Get(name)}});
    const Batch batch = Texts(random, 4);
    ExpectSameBits(flat->Evaluate(Views(batch)), by_samples->Evaluate(Views(BySamples(batch, GetParam()))));
  }
}

TEST_P(Flattened, OtherOrdersAreRefused) {
  const auto session = Start(1);
  std::mt19937 random(3);
  const size_t entries = session->plan().entries.size();
  const auto refused = [&](const Batch& batch) {
    try {
      session->Step(Views(batch));
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      return error.message();
    }
    return std::string();
  };
  const std::string why = refused(BySamples(Texts(random, 4), !GetParam()));
  const std::string given = GetParam() ? "[4,6]" : "[6,4]", wanted = GetParam() ? "[6,4]" : "[4,6]";
  EXPECT_NE(why.find("'y' is " + given + ", but the plan expects [24] or " + wanted), std::string::npos) << why;
  EXPECT_EQ(session->plan().entries.size(), entries) << "nothing was compiled for it";
  Batch fewer = BySamples(Texts(random, 4), GetParam());
  fewer.at("x") = Texts(random, 1).at("x");
  const std::string unequal = refused(fewer);
  EXPECT_NE(unequal.find("'x' has 1 sample, but 'y' has 4"), std::string::npos) << unequal;
}

INSTANTIATE_TEST_SUITE_P(Orders, Flattened, testing::Bool(), [](const auto& info) { return info.param ? "Inside" : "Outside"; });

TEST(BySamples, DividesAnAxisOfSeveralPositions) {
  const auto by = [](const Shape& shape, int axis, int64_t inner, int64_t samples) {
    const Feed feed = BySamples(Feed{"y", DType::kInt64, shape, axis, inner}, samples);
    return std::pair(feed.shape, feed.batch_axis);
  };
  EXPECT_EQ(by({8, 3}, 0, 1, 8), std::pair(Shape({8, 3}), 0));
  EXPECT_EQ(by({32, 3}, 0, 4, 8), std::pair(Shape({8, 4, 3}), 0));
  EXPECT_EQ(by({32, 3}, 0, 1, 8), std::pair(Shape({4, 8, 3}), 1));
  EXPECT_EQ(by({3, 48, 5}, 1, 2, 8), std::pair(Shape({3, 3, 8, 2, 5}), 2));
  // Plans of earlier releases do not say in which order.
  EXPECT_EQ(by({32}, 0, 0, 8), std::pair(Shape({32}), 0));
  EXPECT_EQ(by({32}, -1, 0, 8), std::pair(Shape({32}), -1));
}

}  // namespace
}  // namespace gradloom

// Scaled losses: updates that overflow are skipped, and all others equal those of an unscaled loss.
#include "compiler/passes/loss/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr char kModel[] = R"(
net (float[N, 4] x) => (float[N, 3] y) <float[4, 8] w = {0.1, 0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.1, -0.2, 0.3, 0.4, 0.5, 0.6, -0.7, 0.8,
  0.1, 0.2, -0.3, 0.4, 0.5, 0.6, 0.7, 0.8, -0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, -0.8},
  float[8, 3] v = {0.1, 0.2, -0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.1, -0.2, 0.3, 0.4, 0.5, 0.6, -0.7, 0.8, 0.1, 0.2, -0.3, 0.4, 0.5, 0.6, 0.7,
  0.8}> {
  h = MatMul(x, w)
  t = Tanh(h)
  y = MatMul(t, v)
})";

constexpr int64_t kRows = 6;

std::vector<Batch> Batches(int count, float target = 1) {
  std::mt19937 random(7);
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) {
    Batch batch{{"x", Random(random, Shape{kRows, 4})}, {"target", Random(random, Shape{kRows, 3})}};
    for (float& t : batch.at("target").as<float>()) t *= target;
    batches.push_back(std::move(batch));
  }
  return batches;
}

CompileOptions Options(const LossScale& scale, Precision precision = Precision::kFloat16, int devices = 1) {
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "target"}}, devices, {kRows});
  options.recipe.precision = precision;
  options.recipe.loss_scale = scale;
  return options;
}

class Training {
 public:
  explicit Training(const CompileOptions& options) : session_(std::make_shared<const Plan>(Compile(ModelOf(kModel), options))) {}

  void Step(const Batch& batch) { session_.Step(Views(batch)); }
  Tensor Get(std::string_view name) const { return session_.Get(std::string(name)); }
  double scale() const { return Get(kLossScaleState).as<float>()[0]; }
  int64_t skipped() const { return Get(kSkippedUpdatesState).as<int64_t>()[0]; }
  std::map<std::string, Tensor> Parameters() const {
    std::map<std::string, Tensor> all;
    for (const StateTensor& state : session_.plan().state) {
      if (state.kind != StateKind::kLossScale) all.emplace(state.name, session_.Get(state.name));
    }
    return all;
  }
  double Norm() const { return ElementAsDouble(session_.Fetched("grad_norm"), 0); }

 private:
  Session session_;
};

constexpr LossScale kDynamic{.initial = 65536, .dynamic = true, .growth_interval = 3};

TEST(LossScale, MatchesAnUnscaledLossInFloat32) {
  // A power of two changes only exponents.
  Training scaled(Options(kDynamic, Precision::kFloat32)), plain(Options({}, Precision::kFloat32));
  for (const Batch& batch : Batches(5)) {
    scaled.Step(batch);
    plain.Step(batch);
  }
  EXPECT_EQ(scaled.skipped(), 0);
  ExpectNear(plain.Parameters(), scaled.Parameters(), 1e-6);
}

TEST(LossScale, GrowsAfterGoodUpdatesAndFallsWhereGradientsOverflow) {
  Training run(Options(kDynamic));
  std::vector<double> scales;
  // Targets of this size give gradients of about 1. They overflow float16 with a scale of 65536, but not with a fourth of it.
  for (const Batch& batch : Batches(12, 30)) {
    const auto before = run.Parameters();
    const double scale = run.scale();
    const int64_t skipped = run.skipped();
    run.Step(batch);
    scales.push_back(run.scale());
    if (run.skipped() == skipped) continue;
    EXPECT_EQ(run.skipped(), skipped + 1);
    EXPECT_EQ(run.scale(), scale / 2);
    ExpectSameBits(before, run.Parameters());
  }
  EXPECT_GT(run.skipped(), 0);
  EXPECT_LT(run.skipped(), 9);
  // At some point three good updates followed each other.
  bool grew = false;
  for (size_t i = 1; i < scales.size(); ++i) grew |= scales[i] == 2 * scales[i - 1];
  EXPECT_TRUE(grew);
}

TEST(LossScale, SkippedUpdatesAreNotCounted) {
  // Adam's first updates depend on the step number.
  Training run(Options({.initial = 8, .dynamic = true})), same(Options({.initial = 8}));
  std::vector<Batch> batches = Batches(4);
  Batch broken{{"x", Tensor::Copy(batches[0].at("x").view())}, {"target", Tensor::Copy(batches[0].at("target").view())}};
  broken.at("x").as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < batches.size(); ++i) {
    if (i == 2) run.Step(broken);
    run.Step(batches[i]);
    same.Step(batches[i]);
  }
  EXPECT_EQ(run.skipped(), 1);
  EXPECT_EQ(same.skipped(), 0);
  EXPECT_EQ(run.scale(), 4);
  EXPECT_EQ(same.scale(), 8);
  ExpectNear(same.Parameters(), run.Parameters(), 1e-3);
}

TEST(LossScale, ClippingSeesUnscaledGradients) {
  CompileOptions scaled = Options({.initial = 1024}, Precision::kFloat32), plain = Options({}, Precision::kFloat32);
  scaled.recipe.optimizer.clip_norm = plain.recipe.optimizer.clip_norm = 0.01;
  Training a(scaled), b(plain);
  for (const Batch& batch : Batches(3)) {
    a.Step(batch);
    b.Step(batch);
    EXPECT_NEAR(a.Norm(), b.Norm(), 1e-5 * b.Norm());
  }
  ExpectNear(b.Parameters(), a.Parameters(), 1e-5);
}

TEST(LossScale, FetchedGradientsAreUnscaled) {
  const auto scaled = Train(ModelOf(kModel), Options({.initial = 4096}, Precision::kFloat32), Batches(2));
  const auto plain = Train(ModelOf(kModel), Options({}, Precision::kFloat32), Batches(2));
  for (const char* name : {"grad/w@0", "grad/v@1"}) ExpectNear({{name, plain.at(name)}}, {{name, scaled.at(name)}}, 1e-6);
}

TEST(LossScale, SkippedUpdatesKeepOptimizerState) {
  for (const std::string& type : OptimizerTypes()) {
    CompileOptions options = Options({.initial = 2});
    options.recipe.optimizer.type = type;
    if (type == "momentum" || type == "nesterov") options.recipe.optimizer.momentum = 0.9;
    Training run(options);
    const std::vector<Batch> batches = Batches(2);
    run.Step(batches[0]);
    const auto before = run.Parameters();
    Batch broken{{"x", Tensor::Copy(batches[0].at("x").view())}, {"target", Tensor::Copy(batches[0].at("target").view())}};
    broken.at("target").as<float>()[0] = std::numeric_limits<float>::infinity();
    run.Step(broken);
    EXPECT_EQ(run.skipped(), 1) << type;
    ExpectSameBits(before, run.Parameters());
    run.Step(batches[1]);
    EXPECT_EQ(run.skipped(), 1) << type;
    for (const auto& [name, tensor] : run.Parameters()) {
      for (int64_t i = 0; i < tensor.elements(); ++i) ASSERT_TRUE(std::isfinite(ElementAsDouble(tensor.view(), i))) << type << " " << name;
    }
  }
}

TEST(LossScale, AccumulatedBatchesShareOneDecision) {
  CompileOptions options = Options(kDynamic);
  options.recipe.accumulate = 2;
  const std::vector<Batch> batches = Batches(12, 30);
  Training run(options);
  int64_t skipped = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double scale = run.scale();
    run.Step(batches[i]);
    // Nothing is decided in the middle of an update.
    EXPECT_TRUE(i % 2 == 1 || run.scale() == scale);
    skipped = run.skipped();
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 6);
}

TEST(LossScale, DevicesAgree) {
  // Train checks that all devices have the same bits of every state.
  const auto one = Train(ModelOf(kModel), Options(kDynamic), Batches(8, 30));
  const auto two = Train(ModelOf(kModel), Options(kDynamic, Precision::kFloat16, 2), Batches(8, 30), 5);
  for (std::string_view name : {kLossScaleState, kSkippedUpdatesState, kGoodUpdatesState}) {
    ExpectSameBits({{"state", one.at(std::string(name))}}, {{"state", two.at(std::string(name))}});
  }
  ExpectNear({{"w", one.at("w")}}, {{"w", two.at("w")}}, 1e-2);
}

}  // namespace
}  // namespace gradloom

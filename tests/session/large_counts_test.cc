// Counts that no test reaches by counting: steps and batches past 2^32, tens of thousands of classes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/confusion.h"
#include "runtime/session/metrics.h"
#include "runtime/session/schedule.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kFar = int64_t{1} << 32;

// A step at a far position is one step of its own: it draws other numbers than those at positions that equal it in 32 bits, and a run that
// is resumed there has the same bits.
TEST(LargeCounts, StepsFarIntoARun) {
  std::mt19937 random(5);
  const Model model =
      ModelOf("g (float[N, 6] x) => (float[N, 3] z) <" + Weights(random, "w", Shape{6, 8}) + ", " + Weights(random, "v", Shape{8, 3}) +
              ", float ratio = {0.5}, bool yes = {1}> { h = MatMul (x, w) d = Dropout (h, ratio, yes) z = MatMul (d, v) }");
  const auto plan =
      std::make_shared<const Plan>(Compile(model, OptionsFor({{.type = "cross_entropy", .output = "z", .target = "y"}}, 1, {16})));
  const Batch batch{{"x", Random(random, Shape{16, 6})}, {"y", Classes(random, 16, 3)}};
  std::set<double> losses;
  const std::vector<int64_t> positions{7, kFar + 7, 2 * kFar + 7, 1'000'000'000, 1'000'000'007};
  for (const int64_t position : positions) {
    Session whole(plan);
    whole.set_position(position, position);
    losses.insert(whole.Step(Views(batch)).loss);
    Session resumed(plan);
    for (const StateTensor& state : plan->state) {
      if (!state.derived()) resumed.Set(state.name, whole.Get(state.name).view());
    }
    resumed.set_position(whole.step(), whole.batch());
    EXPECT_EQ(whole.step(), position + 1);
    EXPECT_EQ(whole.Step(Views(batch)).loss, resumed.Step(Views(batch)).loss) << position;
    for (const StateTensor& state : plan->state) {
      if (!state.derived()) ExpectSameBits({{state.name, whole.Get(state.name)}}, {{state.name, resumed.Get(state.name)}});
      const Tensor values = whole.Get(state.name);
      for (const float value : values.as<float>()) ASSERT_TRUE(std::isfinite(value)) << state.name;
    }
  }
  EXPECT_EQ(losses.size(), positions.size());
}

TEST(LargeCounts, SchedulesOfLongRuns) {
  constexpr int64_t kTotal = 1'000'000'000'000;
  for (const char* kind : {"linear", "cosine", "one_cycle"}) {
    const Schedule schedule{kind, 0.5, {{"total_steps", kTotal}}};
    // Neighboring steps still differ, as in exact arithmetic: the slope of the line, at most the steepest one of the curves.
    const double here = LearningRate(schedule, kTotal * 3 / 4), next = LearningRate(schedule, kTotal * 3 / 4 + 1000);
    EXPECT_LT(next, here) << kind;
    EXPECT_GT(next, here - 0.5 * 3000 / static_cast<double>(kTotal)) << kind;
  }
}

// Several threads compute them, with the bits of one.
TEST(LargeCounts, MetricsOfManyScores) {
  constexpr int64_t kRows = 64, kClasses = 20'000;
  std::mt19937 random(6);
  const Tensor scores = Random(random, Shape{kRows, kClasses});
  Tensor labels = Classes(random, kRows, kClasses);
  for (int64_t row = 0; row < kRows; row += 3) {  // some are right
    const float* const first = scores.as<float>().data() + row * kClasses;
    labels.as<int64_t>()[static_cast<size_t>(row)] = std::max_element(first, first + kClasses) - first;
  }
  labels.as<int64_t>()[1] = -100;
  double right = 0, among = 0, loss = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const float* const first = scores.as<float>().data() + row * kClasses;
    const int64_t label = labels.as<int64_t>()[static_cast<size_t>(row)];
    if (label < 0) continue;
    const auto above = std::count_if(first, first + kClasses, [&](float other) { return other > first[label]; });
    right += above == 0 ? 1 : 0;
    among += above < 5000 ? 1 : 0;
    const auto largest = static_cast<double>(*std::max_element(first, first + kClasses));
    double sum = 0;
    for (int64_t c = 0; c < kClasses; ++c) sum += std::exp(static_cast<double>(first[c]) - largest);
    loss += largest + std::log(sum) - static_cast<double>(first[label]);
  }
  const auto value = [&](const std::string& name) {
    const auto metric = Metric::Make({.name = name, .output = "z", .target = "y"});
    metric->Add(scores.view(), labels.view());
    return metric->Values().at(name);
  };
  EXPECT_EQ(value("accuracy"), right / (kRows - 1));
  EXPECT_EQ(value("top5000"), among / (kRows - 1));
  EXPECT_EQ(value("perplexity"), std::exp(loss / (kRows - 1)));
  // Of several labels that are wrong, the first is named.
  labels.as<int64_t>()[63] = kClasses;
  labels.as<int64_t>()[7] = kClasses + 1;
  try {
    value("accuracy");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the class 20001 of element 7"), std::string::npos) << error.message();
  }
}

// A table of all pairs of them would have 28 GB.
TEST(LargeCounts, ConfusionOfManyClasses) {
  constexpr int64_t kClasses = 60'000;
  Tensor scores(DType::kFloat32, {3, kClasses});
  const int64_t said[] = {5, 59'999, 5};
  for (int64_t row = 0; row < 3; ++row) scores.as<float>()[static_cast<size_t>(row * kClasses + said[row])] = 1;
  ConfusionMatrix confusion(MetricSpec{.name = "confusion", .output = "z", .target = "y"});
  confusion.Add(scores.view(), Tensor::From<int64_t>({5, 5, 59'998}, {3}).view());
  EXPECT_EQ(confusion.classes(), kClasses);
  EXPECT_EQ(confusion.counts()[5], (std::map<int64_t, int64_t>{{5, 1}, {59'999, 1}}));
  const std::vector<ClassResult> results = confusion.ByClass();
  ASSERT_EQ(std::ssize(results), kClasses);
  EXPECT_EQ(results[5].rows, 2);
  EXPECT_EQ(results[5].precision, 0.5);
  EXPECT_EQ(results[5].recall, 0.5);
  EXPECT_EQ(results[5].f1, 0.5);
  EXPECT_EQ(results[59'998].recall, 0);
  EXPECT_EQ(results[59'999].precision, 0);
  EXPECT_TRUE(std::isnan(results[0].f1));
}

}  // namespace
}  // namespace gradloom

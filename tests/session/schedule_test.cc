// Compares learning rates with those of torch.optim.lr_scheduler, recorded by record_schedules.py.
#include "runtime/session/schedule.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

struct Recorded {
  const char* name;
  Schedule schedule;
  std::vector<double> rates;
};

const std::vector<Recorded> kRecorded = {
    {"linear",
     {"linear", 0.2, {{"total_steps", int64_t{8}}}},
     {0.2, 0.17500000000000002, 0.15000000000000002, 0.12500000000000003, 0.10000000000000003, 0.07500000000000002, 0.050000000000000024,
      0.025000000000000012, 0.0, 0.0, 0.0}},
    {"cosine",
     {"cosine", 0.2, {{"total_steps", int64_t{8}}, {"min_lr", 0.001}}},
     {0.2, 0.19242601348487304, 0.17085712472806147, 0.13857700152032645, 0.1005, 0.06242299847967358, 0.03014287527193853,
      0.008573986515126971, 0.001}},
    {"step", {"step", 0.2, {{"step_size", int64_t{3}}, {"gamma", 0.5}}}, {0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025}},
    {"one_cycle",
     {"one_cycle", 0.2, {{"total_steps", int64_t{10}}}},
     {0.008000000000000007, 0.10400000000000001, 0.2, 0.19009692640269477, 0.1623491307899526, 0.12225240438725786, 0.07774839561274215,
      0.0376516692100474, 0.009903873597305258, 8e-07}},
    {"one_cycle_warmup",
     {"one_cycle", 0.2, {{"total_steps", int64_t{12}}, {"warmup_steps", int64_t{3}}}},
     {0.008000000000000007, 0.10400000000000001, 0.2, 0.19396928620154255, 0.17660453789412056, 0.1500002, 0.117365148307422,
      0.08263565169257804, 0.05000060000000003, 0.02339626210587946, 0.006031513798457483, 8e-07}},
    {"warmup_cosine",
     {"cosine", 0.2, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{4}}}},
     {0.0, 0.05, 0.1, 0.15000000000000002, 0.2, 0.1866025403784439, 0.15000000000000002, 0.1, 0.050000000000000024, 0.01339745962155613}},
    {"polynomial",
     {"polynomial", 0.2, {{"total_steps", int64_t{8}}, {"power", 1.5}}},
     {0.2, 0.16369751067135996, 0.1299038105676658, 0.09882117688026187, 0.07071067811865478, 0.045927932677184605, 0.02500000000000001,
      0.008838834764831847, 0.0, 0.0}},
    {"multi_step",
     {"multi_step", 0.2, {{"milestones", std::vector<int64_t>{2, 5, 6}}, {"gamma", 0.3}}},
     {0.2, 0.2, 0.06, 0.06, 0.06, 0.018, 0.005399999999999999, 0.005399999999999999, 0.005399999999999999}},
    {"exponential",
     {"exponential", 0.2, {{"step_size", int64_t{1}}, {"gamma", 0.9}}},
     {0.2, 0.18000000000000002, 0.16200000000000003, 0.14580000000000004, 0.13122000000000003, 0.11809800000000004, 0.10628820000000004,
      0.09565938000000004}},
    {"cosine_restarts",
     {"cosine_restarts", 0.2, {{"total_steps", int64_t{12}}, {"warmup_steps", int64_t{2}}, {"cycles", int64_t{3}}}},
     {0.0, 0.1, 0.2, 0.1587785252292473, 0.06909830056250525, 0.004894348370484658, 0.1809016994374947, 0.1, 0.01909830056250529,
      0.1951056516295154, 0.13090169943749463, 0.04122147477075266, 0.0, 0.0}},
    {"wsd",
     {"wsd", 0.2, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{2}}, {"decay_steps", int64_t{4}}, {"min_lr", 0.04}}},
     {0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.16, 0.12, 0.08, 0.04, 0.04}},
    {"inverse_sqrt",
     {"inverse_sqrt", 0.2, {}},
     {0.2, 0.19999000074993756, 0.19998000299950014, 0.19997000674831297, 0.19996001199600144, 0.1999500187421909}},
    {"warmup_inverse_sqrt",
     {"inverse_sqrt", 0.2, {{"warmup_steps", int64_t{3}}}},
     {0.0, 0.06666666666666667, 0.13333333333333333, 0.2, 0.17320508075688776, 0.1549193338482967, 0.1414213562373095, 0.13093073414159542,
      0.1224744871391589}},
    {"warmup_polynomial",
     {"polynomial", 0.2, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{4}}, {"power", 2.0}}},
     {0.0, 0.05, 0.1, 0.15000000000000002, 0.2, 0.13888888888888892, 0.08888888888888893, 0.05000000000000002, 0.022222222222222233,
      0.005555555555555555, 0.0}},
    {"warmup_constant",
     {"constant", 0.2, {{"warmup_steps", int64_t{5}}}},
     {0.0, 0.04000000000000001, 0.08000000000000002, 0.12, 0.16000000000000003, 0.2, 0.2, 0.2}},
};

TEST(Schedule, AgreesWithTorch) {
  for (const Recorded& recorded : kRecorded) {
    for (size_t step = 0; step < recorded.rates.size(); ++step) {
      EXPECT_NEAR(LearningRate(recorded.schedule, static_cast<int64_t>(step)), recorded.rates[step], 1e-14)
          << recorded.name << " step " << step;
    }
  }
}

TEST(Schedule, KeepsItsLastRate) {
  EXPECT_NEAR(LearningRate({"cosine", 1, {{"total_steps", int64_t{10}}, {"min_lr", 0.25}}}, 1000), 0.25, 1e-15);
  EXPECT_NEAR(LearningRate({"linear", 1, {{"total_steps", int64_t{10}}}}, 1000), 0, 1e-15);
  EXPECT_NEAR(LearningRate({"one_cycle", 1, {{"total_steps", int64_t{10}}}}, 1000), 1 / 25.0 / 1e4, 1e-15);
}

// A decay of some steps, as tf.keras.optimizers.schedules.ExponentialDecay.
TEST(Schedule, ExponentialOfSeveralSteps) {
  const Schedule schedule{"exponential", 0.2, {{"step_size", int64_t{4}}, {"gamma", 0.5}}};
  EXPECT_NEAR(LearningRate(schedule, 2), 0.2 * std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 4), 0.1, 1e-15);
}

// Milestones count from the first update, not from the end of the warm-up.
TEST(Schedule, MilestonesAfterAWarmUp) {
  const Schedule schedule{"multi_step", 1, {{"milestones", std::vector<int64_t>{3, 6}}, {"warmup_steps", int64_t{4}}}};
  EXPECT_NEAR(LearningRate(schedule, 2), 0.5, 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 4), 0.1, 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 6), 0.01, 1e-15);
}

// Shares of a short run may be the same step.
TEST(Schedule, MilestonesMayCoincide) {
  const Schedule schedule{"multi_step", 1, {{"milestones", std::vector<int64_t>{2, 2}}}};
  EXPECT_NEAR(LearningRate(schedule, 1), 1, 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 2), 0.01, 1e-15);
}

TEST(Schedule, OneCycleOfOneStepIsFinite) {
  EXPECT_TRUE(std::isfinite(LearningRate({"one_cycle", 1, {{"total_steps", int64_t{1}}}}, 0)));
  EXPECT_TRUE(std::isfinite(LearningRate({"one_cycle", 1, {{"total_steps", int64_t{1}}, {"warmup_steps", int64_t{1}}}}, 0)));
}

TEST(Schedule, WarmUpOfTheWholeRun) {
  const Schedule schedule{"cosine", 1, {{"total_steps", int64_t{4}}, {"warmup_steps", int64_t{4}}}};
  EXPECT_NEAR(LearningRate(schedule, 3), 0.75, 1e-15);
  EXPECT_NEAR(LearningRate(schedule, 4), 0, 1e-15);
}

TEST(Schedule, RejectsInvalidSchedules) {
  const std::vector<Schedule> wrong = {
      {"cosin", 1, {}},
      {"cosine", 1, {}},
      {"one_cycle", 1, {{"total_steps", int64_t{0}}}},
      {"linear", 1, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{11}}}},
      {"step", 1, {}},
      {"step", 1, {{"step_size", int64_t{0}}}},
      {"multi_step", 1, {}},
      {"multi_step", 1, {{"milestones", std::vector<int64_t>{3, 2}}}},
      {"multi_step", 1, {{"milestones", std::vector<int64_t>{-1, 2}}}},
      {"wsd", 1, {}},
      {"wsd", 1, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{4}}, {"decay_steps", int64_t{7}}}},
      {"wsd", 1, {{"total_steps", int64_t{10}}, {"decay_steps", int64_t{-1}}}},
      {"wsd", 1, {{"total_steps", std::numeric_limits<int64_t>::max()}, {"warmup_steps", std::numeric_limits<int64_t>::min()}}},
      {"wsd", 1, {{"total_steps", std::numeric_limits<int64_t>::min()}}},
      {"exponential", 1, {}},
      {"exponential", 1, {{"step_size", int64_t{4}}, {"gamma", -0.5}}},
      {"polynomial", 1, {{"power", 2.0}}},
      {"polynomial", 1, {{"total_steps", int64_t{10}}, {"power", -1.0}}},
      {"cosine_restarts", 1, {{"total_steps", int64_t{10}}, {"cycles", int64_t{0}}}},
      {"cosine_restarts", 1, {{"total_steps", int64_t{1} << 62}, {"cycles", int64_t{1} << 40}}},
      {"cosine", 1, {{"total_steps", int64_t{10}}, {"min_lr", std::nan("")}}},
      {"constant", 1, {{kUnknownShare, int64_t{1}}}},
      {"constant", -1, {}},
      {"constant", std::nan(""), {}},
      {"constant", 1, {{"warmup_steps", int64_t{-1}}}},
  };
  for (const Schedule& schedule : wrong) {
    try {
      LearningRate(schedule, 0);
      ADD_FAILURE() << schedule.kind << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    }
  }
}

}  // namespace
}  // namespace gradloom

// Compares learning rates with those of torch.optim.lr_scheduler, recorded by record_schedules.py.
#include "runtime/session/schedule.h"

#include <cmath>

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
     {"linear", 0.2, {{"total_steps", int64_t{8}}, {"end_factor", 0.1}}},
     {0.2, 0.1775, 0.15499999999999997, 0.13249999999999998, 0.10999999999999999, 0.08749999999999998, 0.06499999999999999,
      0.04249999999999999, 0.019999999999999993, 0.019999999999999993, 0.019999999999999993}},
    {"cosine",
     {"cosine", 0.2, {{"total_steps", int64_t{8}}, {"min_lr", 0.001}}},
     {0.2, 0.19242601348487304, 0.17085712472806147, 0.13857700152032645, 0.1005, 0.06242299847967358, 0.03014287527193853,
      0.008573986515126971, 0.001}},
    {"step", {"step", 0.2, {{"step_size", int64_t{3}}, {"gamma", 0.5}}}, {0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025}},
    {"milestones",
     {"step", 0.2, {{"milestones", std::vector<int64_t>{2, 5, 6}}}},
     {0.2, 0.2, 0.020000000000000004, 0.020000000000000004, 0.020000000000000004, 0.0020000000000000005, 0.00020000000000000006,
      0.00020000000000000006}},
    {"one_cycle",
     {"one_cycle", 0.2, {{"total_steps", int64_t{10}}}},
     {0.008000000000000007, 0.10400000000000001, 0.2, 0.19009692640269477, 0.1623491307899526, 0.12225240438725786, 0.07774839561274215,
      0.0376516692100474, 0.009903873597305258, 8e-07}},
    {"one_cycle_options",
     {"one_cycle", 0.2, {{"total_steps", int64_t{12}}, {"pct_start", 0.25}, {"div_factor", 10.0}, {"final_div_factor", 100.0}}},
     {0.01999999999999999, 0.11, 0.2, 0.19397529281651227, 0.1766278398675859, 0.15005000000000002, 0.11744745294892636,
      0.08275254705107367, 0.05015000000000002, 0.023572160132414106, 0.006224707183487759, 0.0002}},
    {"warmup_cosine",
     {"cosine", 0.2, {{"total_steps", int64_t{10}}, {"warmup_steps", int64_t{4}}, {"warmup_start", 0.25}}},
     {0.05, 0.08750000000000001, 0.12500000000000003, 0.16250000000000003, 0.2, 0.1866025403784439, 0.15000000000000002, 0.1,
      0.050000000000000024, 0.01339745962155613}},
    {"warmup_constant",
     {"constant", 0.2, {{"warmup_steps", int64_t{5}}}},
     {0.0, 0.04000000000000001, 0.08000000000000002, 0.12, 0.16000000000000003, 0.2, 0.2, 0.2}},
    {"factors", {"factors", 0.2, {{"factors", std::vector<double>{1, 0.5, 0.25, 2}}}}, {0.2, 0.1, 0.05, 0.4}},
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
  EXPECT_NEAR(LearningRate({"factors", 1, {{"factors", std::vector<double>{3, 2}}}}, 1000), 2, 1e-15);
  EXPECT_NEAR(LearningRate({"one_cycle", 1, {{"total_steps", int64_t{10}}}}, 1000), 1 / 25.0 / 1e4, 1e-15);
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
      {"factors", 1, {}},
      {"constant", -1, {}},
      {"constant", std::nan(""), {}},
      {"constant", 1, {{"warmup_steps", int64_t{-1}}}},
      {"one_cycle", 1, {{"total_steps", int64_t{10}}, {"pct_start", 1.5}}},
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

// Measured selection among a library's plans, with made-up plans.
#include "kernels/cuda/measured_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/emulated_launch.h"
#include "kernels/cuda/libraries.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom::cuda {
namespace {

struct FakePlan {
  std::string name;
  int milliseconds = 0;  // run time
  bool usable = true, runs = true;
};

class FakePlans : public CandidatePlans {
 public:
  explicit FakePlans(std::vector<FakePlan> plans) : plans_(std::move(plans)) {}

  int64_t count() const override { return std::ssize(plans_); }
  std::string name(int64_t i) const override { return At(i).name; }
  std::string chosen() const override { return At(chosen_).name; }
  bool Activate(int64_t i) override {
    if (!At(i).usable) return false;
    chosen_ = i;
    return true;
  }
  bool Enqueue(int64_t i, std::span<void* const> addresses, void* scratch, CUstream_st* stream) override {
    EXPECT_TRUE(At(i).usable);
    EXPECT_EQ(addresses.size(), 2U);
    EXPECT_NE(scratch, nullptr);
    ran.insert(At(i).name);
    if (!At(i).runs) return false;
    EmulatedLaunch(stream, [ms = At(i).milliseconds] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
    return true;
  }

  std::set<std::string> ran;

 private:
  const FakePlan& At(int64_t i) const { return plans_[static_cast<size_t>(i)]; }
  std::vector<FakePlan> plans_;
  int64_t chosen_ = 0;
};

class MeasuredPlan : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(cache_);
    setenv("GRADLOOM_CACHE", cache_.c_str(), 1);
    libraries_.algorithms().SetEnvironment("a device");
  }
  void TearDown() override { unsetenv("GRADLOOM_CACHE"); }

  // Returns the chosen plan. The first one is the library's own choice.
  std::string Choose(FakePlans& plans, Algorithms::Mode mode, const std::string& given = "") {
    EXPECT_EQ(libraries_.algorithms().Set(mode, given), "");
    ChooseMeasured(plans, {.problem = "p", .what = "a problem", .bytes = {400, 80}, .scratch_bytes = 512}, libraries_);
    return plans.chosen();
  }

  Libraries libraries_{0};

 private:
  std::filesystem::path cache_ = std::filesystem::path(testing::TempDir()) / "measured_plan";
};

using Mode = Algorithms::Mode;

TEST_F(MeasuredPlan, ChoosesTheFastestUsablePlan) {
  const std::vector<FakePlan> all{{"first", 3}, {"too large", 0, false}, {"broken", 0, true, false}, {"fast", 1}, {"slow", 5}};
  FakePlans plans(all);
  EXPECT_EQ(Choose(plans, Mode::kMeasured), "fast");
  EXPECT_EQ(plans.ran, (std::set<std::string>{"first", "broken", "fast", "slow"}));
  // The choice is cached: nothing is measured the second time, nor by a process that is given the choice.
  FakePlans again(all);
  EXPECT_EQ(Choose(again, Mode::kMeasured), "fast");
  EXPECT_TRUE(again.ran.empty());
  FakePlans told(all);
  EXPECT_EQ(Choose(told, Mode::kGiven, "a device\tp\tslow\n"), "slow");
  EXPECT_TRUE(told.ran.empty());
  // The choice for another kind of device is ignored.
  FakePlans other(all);
  EXPECT_EQ(Choose(other, Mode::kGiven, "another device\tp\tslow\n"), "first");
  EXPECT_TRUE(other.ran.empty());
}

TEST_F(MeasuredPlan, KeepsTheFirstWithoutMeasurement) {
  FakePlans plans({{"first", 3}, {"fast", 0}});
  EXPECT_EQ(Choose(plans, Mode::kFirst), "first");
  EXPECT_TRUE(plans.ran.empty());
}

TEST_F(MeasuredPlan, KeepsTheFirstIfNoneRuns) {
  FakePlans plans({{"first", 0, true, false}, {"other", 0, true, false}});
  EXPECT_EQ(Choose(plans, Mode::kMeasured), "first");
}

TEST_F(MeasuredPlan, KeepsTheFirstIfTheCachedPlanIsGone) {
  FakePlans plans({{"first", 3}, {"kept", 0, false}, {"fast", 0}});
  EXPECT_EQ(Choose(plans, Mode::kGiven, "a device\tp\tkept\n"), "first");
  EXPECT_EQ(Choose(plans, Mode::kGiven, "a device\tp\tof another version\n"), "first");
  EXPECT_TRUE(plans.ran.empty());
}

TEST_F(MeasuredPlan, KeepsTheFirstWithoutMemory) {
  emulated::Reset({.devices = 1, .memory_bytes = 256});
  FakePlans plans({{"first", 3}, {"fast", 0}});
  EXPECT_EQ(Choose(plans, Mode::kMeasured), "first");
  EXPECT_TRUE(plans.ran.empty());
  const std::vector<std::string> notes = libraries_.TakeNotes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], "there is no memory to measure algorithms of a problem in: it has the first");
  emulated::Reset({});
}

// Two processes that started with the same cache, each with problems of its own.
TEST_F(MeasuredPlan, ProcessesShareTheirChoices) {
  Algorithms one, other, later;
  for (Algorithms* each : {&one, &other, &later}) each->SetEnvironment("a device");
  EXPECT_EQ(one.Set(Mode::kMeasured, ""), "");
  EXPECT_EQ(other.Set(Mode::kMeasured, ""), "");
  one.Keep("p", "fast");
  other.Keep("q", "slow");
  one.Keep("r", "first");
  other.Keep("p", "second");
  // A process goes on with what it has chosen.
  EXPECT_EQ(other.Known("p"), "second");
  EXPECT_EQ(later.Set(Mode::kMeasured, ""), "");
  EXPECT_EQ(later.text(), "a device\tp\tfast\na device\tq\tslow\na device\tr\tfirst\n");
}

TEST_F(MeasuredPlan, MeasuresOnlyTheFirstEight) {
  std::vector<FakePlan> all;
  for (int i = 0; i < 9; ++i) all.push_back({"plan " + std::to_string(i), i == 8 ? 0 : 1});
  FakePlans plans(all);
  Choose(plans, Mode::kMeasured);
  EXPECT_EQ(plans.ran.size(), 8U);
  EXPECT_FALSE(plans.ran.contains("plan 8"));
}

}  // namespace
}  // namespace gradloom::cuda

// Compares learning rates reduced on a plateau with those of torch.optim.lr_scheduler.ReduceLROnPlateau, recorded by record_schedules.py.
#include "runtime/session/plateau.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Recorded {
  const char* name;
  PlateauOptions options;
  std::vector<double> values, rates;
};

const std::vector<Recorded> kRecorded = {
    {"noisy",
     {.factor = 0.5, .patience = 1},
     {2.962, 2.477, 1.966, 1.667, 1.36,  1.301, 1.367, 1.155, 1.156, 0.96,  0.916, 0.828,
      0.5,   0.834, 0.743, 0.706, 0.346, 0.31,  0.412, 0.452, 0.546, 0.473, 0.54,  0.348},
     {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125}},
    {"flat",
     {.factor = 0.1, .patience = 2},
     {1, 0.9, 0.90005, 0.8999, 0.95, 0.9, 0.9, 0.85, 0.85, 0.85, 0.85, 0.85, kNan, 0.85, 0.85, 0.1},
     {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.020000000000000004, 0.020000000000000004, 0.020000000000000004, 0.020000000000000004,
      0.0020000000000000005, 0.0020000000000000005, 0.0020000000000000005, 0.00020000000000000006, 0.00020000000000000006,
      0.00020000000000000006}},
    {"cooldown",
     {.factor = 0.3, .patience = 0, .cooldown = 2},
     {2.962, 2.477, 1.966, 1.667, 1.36,  1.301, 1.367, 1.155, 1.156, 0.96,  0.916, 0.828,
      0.5,   0.834, 0.743, 0.706, 0.346, 0.31,  0.412, 0.452, 0.546, 0.473, 0.54,  0.348},
     {0.2,
      0.2,
      0.2,
      0.2,
      0.2,
      0.2,
      0.06,
      0.06,
      0.06,
      0.06,
      0.06,
      0.06,
      0.06,
      0.018,
      0.018,
      0.018,
      0.018,
      0.018,
      0.005399999999999999,
      0.005399999999999999,
      0.005399999999999999,
      0.0016199999999999997,
      0.0016199999999999997,
      0.0016199999999999997}},
    {"larger",
     {.larger = true, .factor = 0.5, .patience = 1, .threshold = 0.01},
     {-2.962, -2.477, -1.966, -1.667, -1.36,  -1.301, -1.367, -1.155, -1.156, -0.96,  -0.916, -0.828,
      -0.5,   -0.834, -0.743, -0.706, -0.346, -0.31,  -0.412, -0.452, -0.546, -0.473, -0.54,  -0.348},
     {0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125}},
    {"floor",
     {.factor = 0.1, .patience = 0, .min_lr = 0.005},
     {1, 1, 1, 1, 1, 1, 1, 1},
     {0.2, 0.020000000000000004, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005}},
    {"tiny", {.factor = 0.0001, .patience = 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0.2, 2e-05, 2e-09, 2e-09, 2e-09, 2e-09, 2e-09, 2e-09, 2e-09}},
};

TEST(Plateau, MatchesTorchBitForBit) {
  for (const Recorded& recorded : kRecorded) {
    Plateau plateau(recorded.options, 0.2);
    for (size_t i = 0; i < recorded.values.size(); ++i) {
      EXPECT_EQ(plateau.Step(recorded.values[i]), recorded.rates[i]) << recorded.name << " evaluation " << i;
    }
  }
}

TEST(Plateau, ResumesFromAnyState) {
  for (const Recorded& recorded : kRecorded) {
    for (size_t cut = 0; cut <= recorded.values.size(); ++cut) {
      Plateau before(recorded.options, 0.2);
      for (size_t i = 0; i < cut; ++i) before.Step(recorded.values[i]);
      Plateau after(recorded.options, 77);
      after.set_state(before.state());
      EXPECT_EQ(after.lr(), cut == 0 ? 0.2 : recorded.rates[cut - 1]);
      for (size_t i = cut; i < recorded.values.size(); ++i) EXPECT_EQ(after.Step(recorded.values[i]), recorded.rates[i]);
    }
  }
}

// A value that is not finite is never the best, whichever direction is better, and the state can be written down.
TEST(Plateau, InfinityIsNotTheBest) {
  for (const bool larger : {false, true}) {
    for (const double first : {kInfinity, -kInfinity, kNan}) {
      Plateau plateau({.larger = larger, .factor = 0.5, .patience = 1}, 0.2);
      plateau.Step(first);
      Plateau after({.larger = larger, .factor = 0.5, .patience = 1}, 0.2);
      after.set_state(plateau.state());
      EXPECT_EQ(after.Step(3), 0.2);
      EXPECT_EQ(after.Step(3), 0.2);
      EXPECT_EQ(after.Step(3), 0.1) << "the best value was 3, and two were not better";
    }
  }
  // As older releases wrote an infinite best value.
  Plateau plateau({.factor = 0.5, .patience = 1}, 0.2);
  plateau.set_state(R"({"lr": 0.1, "best": null, "has_best": true, "bad": 0, "cooling": 0})");
  plateau.Step(3);
  EXPECT_EQ(plateau.Step(2), 0.1);
}

TEST(Plateau, RejectsInvalidOptions) {
  for (const double factor : {0.0, 1.0, 2.0, kNan}) EXPECT_THROW(Plateau({.factor = factor}, 0.1), Error);
  Plateau plateau({}, 0.1);
  for (const char* text : {"", "{}", "[1]", "{\"lr\": \"fast\"}"}) EXPECT_THROW(plateau.set_state(text), Error);
}

}  // namespace
}  // namespace gradloom

// Compares launches that share a GPU with a calculation in small steps of time.
#include "compiler/cost/shared_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct Work {
  double fixed, work;
};

// By stream, when each of its launches ends if they follow each other.
using Ends = std::vector<std::vector<double>>;

Ends InSmallSteps(std::vector<std::vector<Work>> streams, double step) {
  Ends ends(streams.size());
  std::vector<size_t> next(streams.size(), 0);
  bool any = true;
  for (int64_t tick = 0; any; ++tick) {
    std::vector<Work*> working;
    any = false;
    std::vector<size_t> done;
    for (size_t s = 0; s < streams.size(); ++s) {
      if (next[s] == streams[s].size()) continue;
      any = true;
      Work& launch = streams[s][next[s]];
      if (launch.fixed > 0) {
        launch.fixed -= step;
      } else {
        working.push_back(&launch);
      }
    }
    for (Work* launch : working) launch->work -= step / static_cast<double>(working.size());
    for (size_t s = 0; s < streams.size(); ++s) {
      if (next[s] == streams[s].size() || streams[s][next[s]].fixed > 0 || streams[s][next[s]].work > 0) continue;
      ends[s].push_back(static_cast<double>(tick + 1) * step);
      ++next[s];
    }
  }
  return ends;
}

Ends Shared(const std::vector<std::vector<Work>>& streams) {
  SharedDevice device(streams.size());
  Ends ends(streams.size());
  for (double now = 0;;) {
    for (size_t s = 0; s < streams.size(); ++s) {
      if (!device.busy(s) && ends[s].size() < streams[s].size())
        device.Launch(s, streams[s][ends[s].size()].fixed, streams[s][ends[s].size()].work);
    }
    now = device.NextChange();
    if (now == std::numeric_limits<double>::infinity()) return ends;
    std::vector<bool> busy;
    for (size_t s = 0; s < streams.size(); ++s) busy.push_back(device.busy(s));
    device.AdvanceTo(now);
    for (size_t s = 0; s < streams.size(); ++s) {
      if (busy[s] && !device.busy(s)) ends[s].push_back(now);
    }
  }
}

TEST(SharedDevice, TwoEqualWorksTakeTwiceAsLong) {
  EXPECT_EQ(Shared({{{0, 1}}, {{0, 1}}}), (Ends{{2}, {2}}));
  // The second starts its work after half of the first's.
  EXPECT_EQ(Shared({{{0, 1}}, {{0.5, 1}}}), (Ends{{1.5}, {2}}));
}

// A quarter of the device is taken in the second second.
TEST(SharedDevice, WorksHaveWhatIsLeft) {
  SharedDevice device(2);
  device.Launch(0, 0, 1);
  device.Launch(1, 0, 2);
  device.AdvanceTo(0);
  device.AdvanceTo(1);
  device.SetTaken(0.25);
  EXPECT_DOUBLE_EQ(device.NextChange(), 1 + 1 / 0.75);
  device.AdvanceTo(2);
  device.SetTaken(0);
  EXPECT_DOUBLE_EQ(device.NextChange(), 2.25);
  device.AdvanceTo(2.25);
  EXPECT_FALSE(device.busy(0));
  EXPECT_DOUBLE_EQ(device.NextChange(), 3.25);
}

TEST(SharedDevice, FixedCostsOverlap) { EXPECT_EQ(Shared({{{1, 0}, {1, 0}}, {{2, 0}}, {{1.5, 0}}}), (Ends{{1, 2}, {2}, {1.5}})); }

TEST(SharedDevice, IsTheLimitOfSmallSteps) {
  std::mt19937_64 random(TestSeed());
  const auto seconds = [&] { return random() % 4 == 0 ? 0.0 : std::uniform_real_distribution<double>(0.02, 1)(random); };
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<Work>> streams(1 + random() % 4);
    for (auto& stream : streams) {
      for (uint64_t launches = random() % 5; launches > 0; --launches) stream.push_back({seconds(), 0.01 + seconds()});
    }
    constexpr double kStep = 1e-5;
    const Ends want = InSmallSteps(streams, kStep), got = Shared(streams);
    for (size_t s = 0; s < streams.size(); ++s) {
      ASSERT_EQ(got[s].size(), streams[s].size());
      for (size_t i = 0; i < got[s].size(); ++i) EXPECT_NEAR(got[s][i], want[s][i], 100 * kStep);
    }
  }
}

}  // namespace
}  // namespace gradloom

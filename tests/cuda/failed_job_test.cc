// Steps that fail while GPUs wait for each other, on the host or because a GPU fails: the program ends with an error, or continues, and
// never waits forever.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "tests/comm/forked_job.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/measured_net.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// The number of calls that enqueue work, up to the first collective and including it; 0 if there is none.
int CallsUntilCollective() {
  const auto& calls = emulated::Calls();
  const auto found = std::find_if(calls.begin(), calls.end(), [](const emulated::Call& call) { return call.what == "collective"; });
  return found == calls.end() ? 0 : static_cast<int>(found - calls.begin()) + 1;
}

// Two processes with a GPU each. The first fails where `fails_after` says; in that case the second never runs the step.
std::vector<ForkedEnd> Train(int fails_after) {
  const auto body = [&](const JobTopology& topology) {
    emulated::Reset({.devices = 1, .seed = 3, .fails_after = topology.rank == 0 ? fails_after : -1});
    const auto communicator = Communicator::Connect(topology);
    const MeasuredNet net;
    const auto executor = Executor::Make(net.plan, {.communicator = communicator, .ordinals = {0, 0}});
    if (topology.rank == 0 || fails_after < 0) {
      net.Step(*executor);
      Say(std::to_string(CallsUntilCollective()));
      communicator->Leave();
      return;
    }
    for (int waits = 0; waits < 3000; ++waits) {
      communicator->ThrowIfFailed();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  return RunForked(2, body, 60);
}

TEST(FailedJob, ProcessEndsAlthoughItsCollectiveNeverDoes) {
  const std::vector<ForkedEnd> healthy = Train(-1);
  for (const ForkedEnd& end : healthy) ASSERT_EQ(end.code, 0) << end.words;
  const int calls = std::stoi(healthy[0].words);
  ASSERT_GT(calls, 0);
  // The call after the collective fails.
  const std::vector<ForkedEnd> failed = Train(calls);
  EXPECT_GT(failed[0].code, 0) << "killed by signal " << -failed[0].code;
  EXPECT_NE(failed[0].words.find("E-DEVICE"), std::string::npos) << failed[0].words;
  EXPECT_GT(failed[1].code, 0) << "did not learn that the other process is gone: " << failed[1].words;
}

// The other process is gone before its part of the collective, behind which a launch of this one waits.
TEST(FailedJob, LaunchBehindACollectiveIsNotWaitedForForever) {
  const auto body = [](const JobTopology& topology) {
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);  // otherwise the collective itself waits for its members on the host
    emulated::Reset({.devices = 1, .seed = 3, .queue_limit = 1});
    const auto communicator = Communicator::Connect(topology);
    const MeasuredNet net;
    const auto executor = Executor::Make(net.plan, {.communicator = communicator, .ordinals = {0, 0}});
    if (topology.rank == 1) throw Error(ErrorCode::kData, "no more samples");
    net.Step(*executor);
  };
  const std::vector<ForkedEnd> ends = RunForked(2, body, 60);
  EXPECT_GT(ends[0].code, 0) << "killed by signal " << -ends[0].code;
  EXPECT_NE(ends[0].words.find("E-PEER"), std::string::npos) << ends[0].words;
}

// Seven steps on two devices of one process: with single launches, then captured for each input slot, then as graphs. Returns the number of
// steps that failed.
int FailedSteps(int fails_after) {
  emulated::Reset({.devices = 2, .seed = 3, .fails_after = fails_after});
  const MeasuredNet net;
  const auto executor = Executor::Make(net.plan, {.ordinals = {0, 1}});
  int failed = 0;
  for (int step = 0; step < 7; ++step) {
    try {
      net.Step(*executor);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;
      ++failed;
    }
  }
  return failed;
}

// Within one process, the collectives work again afterwards: after a failure behind a collective that was launched or captured, and of the
// launch of a graph.
TEST(FailedJob, OneProcessContinuesWithItsDevices) {
  const auto body = [](const JobTopology&) {
    if (FailedSteps(-1) != 0) throw Error(ErrorCode::kDevice, "a healthy step has failed");
    std::vector<int> places;
    const auto& calls = emulated::Calls();
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].what == "collective") places.push_back(static_cast<int>(i) + 1);
      if (calls[i].what == "graph") places.push_back(static_cast<int>(i));
    }
    std::string words = std::to_string(places.size()) + " places";
    for (int place : places) {
      if (const int failed = FailedSteps(place); failed != 1) words += ", call " + std::to_string(place) + ": " + std::to_string(failed);
    }
    Say(words);
    emulated::Reset({});
  };
  const ForkedEnd end = RunForked(1, body, 120)[0];
  EXPECT_EQ(end.code, 0) << end.words;
  EXPECT_EQ(end.words.find("call"), std::string::npos) << end.words;
  EXPECT_GT(std::stoi(end.words), 6) << end.words;
}

// The number of items of work that are done on both devices.
int WorkDone() { return emulated::WorkDone(0) + emulated::WorkDone(1); }

// Of a step that fails while it is enqueued, what has been enqueued is done when the error is reported: the next step uses the same memory,
// and streams that it does not use are not waited for.
TEST(FailedJob, NothingOfAFailedStepStillRuns) {
  const auto body = [](const JobTopology&) {
    int failed = 0, runs_on = 0;
    for (const std::vector<int>& ordinals : {std::vector{0}, {0, 0}, {0, 1}, {0, 0, 1}}) {
      const MeasuredNet net(static_cast<int>(ordinals.size()));
      for (int place = 0, steps = 0; steps < 2; place += 5) {
        emulated::Reset({.devices = 2, .seed = 3, .fails_after = place});
        std::unique_ptr<Executor> executor;
        try {
          executor = Executor::Make(net.plan, {.ordinals = ordinals});
          for (steps = 0; steps < 2; ++steps) net.Step(*executor);
        } catch (const Error& error) {
          if (executor == nullptr) continue;
          const int done = WorkDone();
          emulated::AdvanceStreams();
          ++failed;
          runs_on += WorkDone() != done;
        }
      }
    }
    Say(std::to_string(failed) + " failed, " + std::to_string(runs_on) + " run on");
    emulated::Reset({});
  };
  const ForkedEnd end = RunForked(1, body, 120)[0];
  EXPECT_EQ(end.code, 0) << end.words;
  EXPECT_GT(std::stoi(end.words), 20) << end.words;
  EXPECT_NE(end.words.find(" 0 run on"), std::string::npos) << end.words;
}

// Three steps on devices of one process: with single launches, and twice as a graph. Returns the error; empty if there is none.
std::string ThreeSteps(const std::vector<int>& ordinals) {
  try {
    const MeasuredNet net(static_cast<int>(ordinals.size()));
    const auto executor = Executor::Make(net.plan, {.ordinals = ordinals});
    for (int step = 0; step < 3; ++step) net.Step(*executor);
  } catch (const Error& error) {
    return error.Describe();
  }
  return "";
}

// One of two GPUs fails at any time, and the other waits for its events, for its part of NCCL's collectives, or for both. The executor is
// destroyed although the other GPU may wait forever.
TEST(FailedJob, FailedDeviceEndsTheStepsOfOthers) {
  constexpr int kPlaces = 6;
  const uint64_t seed = TestSeed();
  for (const std::vector<int>& ordinals : {std::vector{0, 1}, {0, 0, 1}}) {
    const auto count = [&](const JobTopology&) {
      emulated::Reset({.devices = 2, .seed = seed});
      if (const std::string error = ThreeSteps(ordinals); !error.empty()) throw Error(ErrorCode::kDevice, error);
      Say(std::to_string(emulated::WorkDone(0)) + " " + std::to_string(emulated::WorkDone(1)));
    };
    const ForkedEnd counted = RunForked(1, count, 60)[0];
    ASSERT_EQ(counted.code, 0) << counted.words;
    const std::array<int, 2> work = {std::stoi(counted.words), std::stoi(counted.words.substr(counted.words.find(' ')))};
    // Each process has another device that fails, and another place.
    const auto place = [&](int rank) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
      return static_cast<int>(random() % static_cast<uint64_t>(work[static_cast<size_t>(rank % 2)]));
    };
    const auto body = [&](const JobTopology& topology) {
      emulated::Reset({.devices = 2, .seed = seed, .lost_device = topology.rank % 2, .lost_after = place(topology.rank)});
      Say(ThreeSteps(ordinals));
    };
    const std::vector<ForkedEnd> ends = RunForked(2 * kPlaces, body, 90);
    for (int rank = 0; rank < 2 * kPlaces; ++rank) {
      const ForkedEnd& end = ends[static_cast<size_t>(rank)];
      const std::string where = std::to_string(ordinals.size()) + " ranks, device " + std::to_string(rank % 2) + " fails after " +
                                std::to_string(place(rank)) + " of " + std::to_string(work[static_cast<size_t>(rank % 2)]);
      EXPECT_EQ(end.code, 0) << where << ": " << end.words;
      EXPECT_NE(end.words.find("E-DEVICE"), std::string::npos) << where << ": " << end.words;
    }
  }
}

}  // namespace
}  // namespace gradloom

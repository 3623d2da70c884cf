// A step that fails on the host while GPUs are busy with its collectives: its memory can be freed, because they are ended first.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "tests/comm/forked_job.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/measured_net.h"

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

// Within one process, the collectives work again afterwards.
TEST(FailedJob, OneProcessContinuesWithItsDevices) {
  const auto body = [](const JobTopology&) {
    const auto step = [](int fails_after) {
      emulated::Reset({.devices = 2, .seed = 3, .fails_after = fails_after});
      const MeasuredNet net;
      const auto executor = Executor::Make(net.plan, {.ordinals = {0, 1}});
      bool failed = false;
      try {
        net.Step(*executor);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDevice) throw;
        failed = true;
      }
      const int calls = CallsUntilCollective();
      // The third step is a graph.
      for (int more = 0; more < 3; ++more) net.Step(*executor);
      return failed == (fails_after >= 0) ? calls : -1;
    };
    const int calls = step(-1);
    Say(std::to_string(calls) + " " + std::to_string(step(calls)));
    emulated::Reset({});
  };
  const ForkedEnd end = RunForked(1, body, 60)[0];
  EXPECT_EQ(end.code, 0) << end.words;
  const std::string once = end.words.substr(0, end.words.find(' '));
  EXPECT_GT(std::stoi(once), 0) << end.words;
  EXPECT_EQ(end.words, once + " " + once);
}

}  // namespace
}  // namespace gradloom

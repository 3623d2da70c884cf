// GPUs with and without access to each other's memory.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "tests/conformance/run_case.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom {
namespace {

using Pairs = std::set<std::pair<int, int>>;

class Peers : public testing::Test {
 protected:
  void TearDown() override { emulated::Reset({}); }

  std::string Failures(const RunOptions& options) {
    std::string text;
    for (const std::string& failure : Compare(recorded_, RunCase(recorded_, options)).failures) text += failure + "\n";
    return text;
  }

 private:
  TrainingCase recorded_ = ReadTrainingCase("tests/conformance/cases/lenet");
};

TEST_F(Peers, StagesEnablePeerAccess) {
  const RunOptions parts{.devices = "cuda:0,2", .stages = 2, .place_seed = 3};
  emulated::Reset({.devices = 3, .seed = 4});
  EXPECT_EQ(Failures(parts), "");
  EXPECT_EQ(emulated::EnabledPeers(), (Pairs{{0, 2}, {2, 0}}));
  // Access is enabled once per process. The second time the driver says so, which is not an error.
  EXPECT_EQ(Failures(parts), "");
  EXPECT_EQ(emulated::EnabledPeers(), (Pairs{{0, 2}, {2, 0}}));
}

TEST_F(Peers, OneDeviceEnablesNoAccess) {
  emulated::Reset({.devices = 2, .seed = 4});
  EXPECT_EQ(Failures({.devices = "cuda:0,0", .stages = 2, .place_seed = 3}), "");
  EXPECT_EQ(emulated::EnabledPeers(), Pairs());
}

TEST_F(Peers, StagesTrainWithoutPeerAccess) {
  emulated::Reset({.devices = 2, .seed = 4, .peers = false});
  for (const bool graph : {true, false}) {
    EXPECT_EQ(Failures({.devices = "cuda:0,1", .graph = graph, .stages = 2, .place_seed = 3}), "");
  }
  EXPECT_EQ(emulated::EnabledPeers(), Pairs());
  // NCCL does not need peer access.
  EXPECT_EQ(Failures({.devices = "cuda:0,1"}), "");
}

TEST_F(Peers, OwnKernelsNeedPeerAccess) {
  const RunOptions mixed{.devices = "cuda:0,0,1"};
  emulated::Reset({.devices = 2, .seed = 4});
  EXPECT_EQ(Failures(mixed), "");
  EXPECT_EQ(emulated::EnabledPeers(), (Pairs{{0, 1}, {1, 0}}));
  emulated::Reset({.devices = 2, .seed = 4, .peers = false});
  try {
    Failures(mixed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(error.message().find("whose memory they cannot read"), std::string::npos) << error.Describe();
  }
}

}  // namespace
}  // namespace gradloom

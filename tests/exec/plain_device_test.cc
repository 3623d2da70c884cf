// Plans for GPUs on the shortest device: tests the executor without the CUDA toolkit.
#include "tests/exec/plain_device.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/conformance/run_case.h"

namespace gradloom {
namespace {

class OnAPlainDevice : public testing::Test {
 protected:
  void SetUp() override { SetCudaPlatform(&PlainPlatform()); }
  void TearDown() override { SetCudaPlatform(nullptr); }
};

TEST_F(OnAPlainDevice, CasesTrainAsRecorded) {
  for (const char* name : {"housing_mlp", "linear_5_2", "lstm_classifier", "recommender", "tiny_gpt"}) {
    const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/cases/") + name);
    const int before = PlainGraphLaunches();
    const TrainingRun graphs = RunCase(recorded, {.devices = "cuda:0"});
    EXPECT_GT(PlainGraphLaunches(), before);
    const TrainingRun launches = RunCase(recorded, {.streams = 3, .devices = "cuda:0", .graph = false});
    for (const TrainingRun* run : {&graphs, &launches}) {
      std::string failures;
      for (const std::string& failure : Compare(recorded, *run).failures) failures += failure + "\n";
      EXPECT_EQ(failures, "") << name;
    }
    EXPECT_EQ(graphs.losses, launches.losses) << name;
  }
}

}  // namespace
}  // namespace gradloom

// Measured algorithms in a job of several processes: the first one measures and decides, the others take what it has found, whatever they
// would find themselves.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/executor.h"
#include "tests/comm/forked_job.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/measured_net.h"

namespace gradloom {
namespace {

std::filesystem::path CacheOf(int process) {
  return std::filesystem::path(testing::TempDir()) / ("autotune_job" + std::to_string(process));
}

// A step of a plan for two devices, one in each process. Says how often heuristics were asked, which algorithms ran, and the loss.
void Train(const JobTopology& topology, bool autotune) {
  setenv("GRADLOOM_CACHE", CacheOf(topology.rank).c_str(), 1);
  const auto communicator = Communicator::Connect(topology);
  const MeasuredNet net;
  // To the second process another one would be the fastest.
  emulated::SetBlasAlgorithms(4, topology.rank == 0 ? 3 : 2);
  {
    // Each process sees a GPU of its own, of the same name.
    const auto executor = Executor::Make(net.plan, {.communicator = communicator, .ordinals = {0, 0}, .autotune = autotune});
    const TensorView loss = net.Step(*executor);
    std::string words = "asked " + std::to_string(emulated::BlasAsked()) + " ran";
    for (int algorithm : emulated::BlasRan()) words += " " + std::to_string(algorithm);
    Say(words + " loss " + std::to_string(ElementAsDouble(loss, 0)));
  }
  communicator->Leave();
}

std::vector<std::string> Words(bool autotune) {
  for (int process : {0, 1}) std::filesystem::remove_all(CacheOf(process));
  std::vector<std::string> words;
  for (const ForkedEnd& end : RunForked(2, [&](const JobTopology& topology) { Train(topology, autotune); })) {
    EXPECT_EQ(end.code, 0) << end.words;
    words.push_back(end.words);
  }
  return words;
}

std::string After(const std::string& text, const std::string& what) { return text.substr(text.find(what)); }

TEST(AutotuneJob, TheFirstProcessMeasuresForAll) {
  const std::vector<std::string> first = Words(false), measured = Words(true);
  // Without it each takes the first, and keeps nothing.
  for (const std::string& words : first) EXPECT_EQ(words.find("asked 2 ran 1 loss"), 0U) << words;
  EXPECT_EQ(measured[0].find("asked 2 ran 1 2 3 4 loss"), 0U) << measured[0];
  // The third, or the fourth where the machine was busy; by itself it would have found the second fast enough.
  const std::string ran = measured[1].substr(0, measured[1].find(" loss"));
  EXPECT_TRUE(ran == "asked 0 ran 3" || ran == "asked 0 ran 4" || ran == "asked 0 ran 3 4") << measured[1];
  for (const std::string& words : measured) EXPECT_EQ(After(words, "loss"), After(first[0], "loss"));
  EXPECT_TRUE(std::filesystem::exists(CacheOf(0) / "algorithms"));
  EXPECT_FALSE(std::filesystem::exists(CacheOf(1) / "algorithms"));
}

}  // namespace
}  // namespace gradloom

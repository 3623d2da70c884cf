// Measured algorithms in a job of several processes: the first process measures and decides, and the others use its choices, whatever they
// would measure themselves.
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

// Runs a step of a plan for two devices, one per process. Says how often heuristics were queried, which algorithms ran, and the loss.
void Train(const JobTopology& topology, bool autotune) {
  setenv("GRADLOOM_CACHE", CacheOf(topology.rank).c_str(), 1);
  const auto communicator = Communicator::Connect(topology);
  const MeasuredNet net;
  // For the second process a different algorithm would be the fastest.
  emulated::SetBlasAlgorithms(4, topology.rank == 0 ? 3 : 2);
  {
    // Each process sees its own GPU, of the same name.
    const auto executor = Executor::Make(net.plan, {.communicator = communicator, .ordinals = {0, 0}, .autotune = autotune});
    const TensorView loss = net.Step(*executor);
    std::string words = "asked " + std::to_string(emulated::BlasQueries()) + " ran";
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

TEST(AutotuneJob, FirstProcessMeasuresForAll) {
  const std::vector<std::string> first = Words(false), measured = Words(true);
  // Without autotuning each process uses the first algorithm and caches nothing.
  for (const std::string& words : first) EXPECT_EQ(words.find("asked 2 ran 1 loss"), 0U) << words;
  EXPECT_EQ(measured[0].find("asked 2 ran 1 2 3 4 loss"), 0U) << measured[0];
  // The third algorithm, or the fourth if the machine was busy. By itself the process would have chosen the second.
  const std::string ran = measured[1].substr(0, measured[1].find(" loss"));
  EXPECT_TRUE(ran == "asked 0 ran 3" || ran == "asked 0 ran 4" || ran == "asked 0 ran 3 4") << measured[1];
  for (const std::string& words : measured) EXPECT_EQ(After(words, "loss"), After(first[0], "loss"));
  EXPECT_TRUE(std::filesystem::exists(CacheOf(0) / "algorithms"));
  EXPECT_FALSE(std::filesystem::exists(CacheOf(1) / "algorithms"));
}

}  // namespace
}  // namespace gradloom

// Recorded training runs with one, two and three threads. The order of summation depends only on shapes, so all bits are the same.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "compiler/compile.h"
#include "kernels/cpu/isa/loops.h"
#include "runtime/exec/host_executor.h"
#include "tests/conformance/training_case.h"
#include "tests/exec/step_fetches.h"

namespace gradloom {
namespace {

class Threads : public testing::TestWithParam<const char*> {};

// The fetches of the steps of one batch size. The arrangement of the state may depend on the number of threads, as layouts do; its contents
// show in the fetches.
std::string Outcome(const TrainingCase& recorded, int threads) {
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.threads = threads;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  HostExecutor executor(std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), options)));
  std::string bytes;
  for (int step = 0; step < recorded.steps() && recorded.batch_sizes[static_cast<size_t>(step)] == recorded.batch_sizes.front(); ++step) {
    AddFetchesOfStep(executor, recorded, step, bytes);
  }
  return bytes;
}

TEST_P(Threads, ChangeNoBit) {
  if (&BestLoops() == LoopsByName("baseline"))
    GTEST_SKIP() << "oneDNN's products without AVX2 take other paths at the edges of what a thread has";
  if (&BestLoops() != LoopsByName("avx512") && GetParam() == std::string_view("resnet_cifar"))
    GTEST_SKIP() << "oneDNN's convolutions without AVX-512 divide the work of three threads differently";
  const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam());
  const std::string alone = Outcome(recorded, 1);
  EXPECT_FALSE(alone.empty());
  for (int threads : {2, 3}) EXPECT_EQ(Outcome(recorded, threads) == alone, true) << GetParam() << " with " << threads << " threads";
}

INSTANTIATE_TEST_SUITE_P(Cases, Threads,
                         testing::Values("convnet_bn_inference_export", "housing_mlp", "lenet", "lstm_classifier", "mobilenet_v2_tiny",
                                         "recommender", "resnet_cifar", "tiny_gpt", "unet_small"));

}  // namespace
}  // namespace gradloom

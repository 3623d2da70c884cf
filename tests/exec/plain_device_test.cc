// Plans for GPUs on the shortest device: tests the executor without the CUDA toolkit.
#include "tests/exec/plain_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "compiler/compile.h"
#include "runtime/session/session.h"
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

// The state is copied and put back by the device; its memory is none of the host's.
TEST_F(OnAPlainDevice, UndoesAStep) {
  const TrainingCase recorded = ReadTrainingCase("tests/conformance/cases/housing_mlp");
  SessionOptions options;
  CompileOptions compile;
  compile.recipe = recorded.recipe;
  SetDevices({.devices = "cuda:0"}, compile.recipe, options);
  compile.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  Session session(std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), compile)), options);
  const Feeds feeds = FeedsOfStep(recorded, 0);
  session.Step(feeds);
  const auto state = [&] {
    std::string bytes;
    for (const StateTensor& tensor : session.plan().state) {
      const Tensor value = session.executor().state().Get(tensor);
      bytes.append(static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes()));
    }
    return bytes;
  };
  const std::string before = state();
  session.KeepState();
  session.Step(feeds);
  EXPECT_NE(state(), before);
  session.UndoStep();
  EXPECT_EQ(state(), before);
  EXPECT_EQ(session.step(), 1);
}

// An output that is an input is a copy: the caller's memory may have changed when it is read.
TEST_F(OnAPlainDevice, KeepsFetchedFeeds) {
  CompileOptions compile;
  compile.recipe.losses = {{.type = "mse", .output = "y", .target = "t"}};
  compile.recipe.optimizer.type = "sgd";
  compile.entries = {{EntryKind::kPredict, 2}};
  SessionOptions options;
  SetDevices({.devices = "cuda:0"}, compile.recipe, options);
  const Model model = Model::FromText(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] x) => (float[N, 2] x, float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (x, w) })");
  Session session(std::make_shared<const Plan>(Compile(model, compile)), options);
  for (const float first : {1.0f, 5.0f}) {
    float x[] = {first, 2, 3, 4};
    session.Forward(EntryKind::kPredict, {{"x", {DType::kFloat32, {2, 2}, x}}});
    x[0] = -1;
    EXPECT_EQ(ElementAsDouble(session.Fetched("x"), 0), first);
  }
}

}  // namespace
}  // namespace gradloom

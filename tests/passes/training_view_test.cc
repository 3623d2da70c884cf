#include "compiler/passes/training_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

std::shared_ptr<const Plan> PlanOf(const std::string& graph, int64_t batch) {
  CompileOptions options;
  options.recipe.losses = {{.type = "output", .output = "y"}};
  options.recipe.optimizer.type = "sgd";
  options.entries = {{EntryKind::kStep, batch}, {EntryKind::kPredict, batch}};
  return std::make_shared<const Plan>(Compile(Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph), options));
}

// One normalization applied to two values, as a module called twice: both batches count, in order.
TEST(TrainingView, SharedStatisticsAreUpdatedByEachUse) {
  Session session(PlanOf(R"(
g (float[N, 1] x) => (float[N, 1] y) <float[1] s = {1}, float[1] b = {0}, float[1] m = {8}, float[1] v = {1}, float[1] one = {1}>
{
  first = BatchNormalization <momentum = 0.5> (x, s, b, m, v)
  moved = Add (x, one)
  second = BatchNormalization <momentum = 0.5> (moved, s, b, m, v)
  y = Add (first, second)
})",
                         2));
  const Tensor x = Tensor::From<float>({1, 3}, Shape{2, 1});
  session.Step({{"x", x.view()}});
  // Means 2 and 3, variances 1 and 1.
  EXPECT_FLOAT_EQ(session.Get("m").as<float>()[0], 0.5f * (0.5f * 8 + 0.5f * 2) + 0.5f * 3);
  EXPECT_FLOAT_EQ(session.Get("v").as<float>()[0], 1);
}

// What a node in training form gives of its statistics is the statistics themselves when nothing is trained.
TEST(TrainingView, StatisticsThatAreReadAreThereWithoutTraining) {
  Session session(PlanOf(R"(
g (float[N, 1] x) => (float[N, 1] y, float[1] mean) <float[1] s = {1}, float[1] b = {0}, float[1] m = {8}, float[1] v = {4}>
{
  h, mean, variance = BatchNormalization <training_mode = 1, epsilon = 0.0> (x, s, b, m, v)
  y = Mul (h, variance)
})",
                         2));
  const Tensor x = Tensor::From<float>({8, 10}, Shape{2, 1});
  const auto outputs = session.Predict({{"x", x.view()}});
  EXPECT_EQ(outputs.at("mean").as<float>()[0], 8);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[0], 0);
  EXPECT_FLOAT_EQ(outputs.at("y").as<float>()[1], 4);
}

}  // namespace
}  // namespace gradloom

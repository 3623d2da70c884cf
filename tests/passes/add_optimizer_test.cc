// Options of the optimizer for some of the parameters.
#include "compiler/passes/update/add_optimizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx/type_rules.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// The updates of two matrices and two biases, by parameter.
std::map<std::string, Attributes> Updates(const OptimizerOptions& options) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder builder(graph, rules);
  std::map<ValueId, ValueId> gradients;
  for (const auto& [name, shape] :
       {std::pair("body.weight", Shape{3, 4}), {"body.bias", Shape{4}}, {"head.weight", Shape{4, 2}}, {"head.bias", Shape{2}}}) {
    const ValueId parameter = graph.AddData(name, Tensor(DType::kFloat32, shape), Role::kParam);
    gradients.emplace(parameter, graph.AddValue(std::string(name) + "/gradient", DType::kFloat32, shape, Role::kInput));
  }
  AddOptimizer(builder, options, gradients);
  std::map<std::string, Attributes> updates;
  for (const Node& node : graph.nodes) {
    if (node.op == "Sgd" || node.op == "LambApply") updates.emplace(graph.value(node.inputs[0]).name, node.attributes);
  }
  return updates;
}

double Decay(const Attributes& update) { return update.Float("weight_decay", 0); }
double LrScale(const Attributes& update) { return update.Float("lr_scale", 1); }

TEST(AddOptimizer, GroupsAreJoinedByOption) {
  OptimizerOptions options{.type = "sgd", .weight_decay = 0.1};
  options.groups = {{.pattern = "*bias", .weight_decay = 0},
                    {.pattern = "head.bias", .lr_scale = 3, .weight_decay = 0.5},
                    {.pattern = "body.*", .lr_scale = 0.25},
                    {.pattern = "*", .lr_scale = 2}};
  const std::map<std::string, Attributes> updates = Updates(options);
  EXPECT_EQ(Decay(updates.at("body.weight")), 0.1);
  EXPECT_EQ(Decay(updates.at("head.weight")), 0.1);
  EXPECT_EQ(Decay(updates.at("body.bias")), 0);
  EXPECT_EQ(Decay(updates.at("head.bias")), 0) << "the first group that states the option";
  EXPECT_EQ(LrScale(updates.at("body.weight")), 0.25);
  EXPECT_EQ(LrScale(updates.at("body.bias")), 0.25) << "a group that does not state the option matches as well";
  EXPECT_EQ(LrScale(updates.at("head.bias")), 3);
  EXPECT_EQ(LrScale(updates.at("head.weight")), 2);

  OptimizerOptions lamb{.type = "lamb"};
  lamb.groups = {{.pattern = "head.*", .lr_scale = 0.5}};
  EXPECT_EQ(LrScale(Updates(lamb).at("head.weight")), 0.5);
  EXPECT_EQ(LrScale(Updates(lamb).at("body.weight")), 1);
}

TEST(AddOptimizer, FewerThanTwoDimensions) {
  const std::map<std::string, Attributes> updates = Updates({.type = "sgd", .weight_decay = 0.1, .no_decay_1d = true});
  EXPECT_EQ(Decay(updates.at("body.weight")), 0.1);
  EXPECT_EQ(Decay(updates.at("body.bias")), 0);
}

TEST(AddOptimizer, RefusesOptionsOutOfRange) {
  OptimizerOptions unmatched{.type = "sgd"}, negative{.type = "sgd"}, decay{.type = "sgd"};
  unmatched.groups = {{.pattern = "boddy.*", .lr_scale = 0.5}};
  negative.groups = {{.pattern = "body.*", .lr_scale = -1}};
  decay.groups = {{.pattern = "body.*", .weight_decay = -0.1}};
  const OptimizerOptions wrong[] = {unmatched,
                                    negative,
                                    decay,
                                    {.type = "rmsprop", .alpha = 1.5},
                                    {.type = "adadelta", .rho = -0.5},
                                    {.type = "adagrad", .lr_decay = -1},
                                    {.type = "adagrad", .initial_accumulator_value = -1},
                                    {.type = "nesterov", .momentum = 0.9, .dampening = 0.1}};
  for (const OptimizerOptions& options : wrong) {
    try {
      Updates(options);
      ADD_FAILURE() << options.type;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.Describe();
    }
  }
}

// Weight decay moves only parameters that the loss depends on, whether gradients are accumulated or not.
TEST(AddOptimizer, LeavesAHeadWithoutALoss) {
  std::mt19937 random(7);
  const Model model = ModelOf("g (float[N, 3] x) => (float[N, 2] a, float[N, 2] b) <" + Weights(random, "wa", Shape{3, 2}) + ", " +
                              Weights(random, "wb", Shape{3, 2}) + "> { a = MatMul (x, wa) b = MatMul (x, wb) }");
  for (int devices : {1, 2}) {
    for (int accumulate : {1, 2}) {
      CompileOptions options = OptionsFor({{.type = "mse", .output = "a"}}, devices, {4});
      options.recipe.fetch_gradients = false;
      options.recipe.optimizer = {.type = "adamw", .weight_decay = 0.1};
      options.recipe.accumulate = accumulate;
      const Plan plan = Compile(model, options);
      EXPECT_GE(plan.FindState("wa/exp_avg"), 0) << accumulate;
      EXPECT_LT(plan.FindState("wb/exp_avg"), 0) << accumulate;
      EXPECT_LT(plan.FindState("wb/grad_sum"), 0) << accumulate;
    }
  }
}

}  // namespace
}  // namespace gradloom

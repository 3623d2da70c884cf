// Gradloom's own operators and their form in standard ONNX operators compute the same, for every optimizer with all its options, and for
// losses over classes.
#include "compiler/passes/standard_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/schedule/program_plan.h"
#include "compiler/passes/update/add_optimizer.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

// Uniform in [low, high).
Tensor Drawn(DType dtype, const Shape& shape, double low, double high, uint64_t key) {
  Tensor doubles(DType::kFloat64, shape);
  auto* values = static_cast<double*>(doubles.data());
  for (int64_t i = 0; i < doubles.elements(); ++i) {
    const double share = static_cast<double>(Mix64(key * 1000003 + static_cast<uint64_t>(i)) >> 11) * 0x1p-53;
    values[i] = low + (high - low) * share;
  }
  return Converted(doubles.view(), dtype);
}

void ExpectNear(const std::vector<Tensor>& is, const std::vector<Tensor>& wanted, const std::string& what, double tolerance) {
  ASSERT_EQ(is.size(), wanted.size());
  for (size_t k = 0; k < is.size(); ++k) {
    ASSERT_EQ(is[k].shape(), wanted[k].shape()) << what;
    for (int64_t i = 0; i < is[k].elements(); ++i) {
      const double a = ElementAsDouble(is[k].view(), i), b = ElementAsDouble(wanted[k].view(), i);
      ASSERT_NEAR(a, b, tolerance * (1 + std::abs(b))) << what << ", output " << k << ", element " << i;
    }
  }
}

bool HasOwn(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.domain == kGradloomDomain) return true;
  }
  return false;
}

std::vector<OptimizerOptions> AllOptimizers() {
  std::vector<OptimizerOptions> all;
  for (const std::string& type : OptimizerTypes()) {
    OptimizerOptions plain{.type = type, .lr = 0.1};
    if (type == "momentum" || type == "nesterov") plain.momentum = 0.75;
    OptimizerOptions decayed = plain;
    decayed.weight_decay = 0.3;
    decayed.clip_norm = 0.5;
    decayed.groups = {{.pattern = "w", .lr_scale = 0.5, .weight_decay = 0.1}};
    all.insert(all.end(), {plain, decayed});
  }
  all.push_back({.type = "sgd", .lr = 0.1, .momentum = 0.9, .dampening = 0.3});
  all.push_back({.type = "sgd", .lr = 0.1, .momentum = 0.9, .clip_value = 0.2});
  all.push_back({.type = "adam", .lr = 0.1, .eps = 0});
  all.push_back({.type = "adam", .lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  all.push_back({.type = "adamw", .lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  all.push_back({.type = "rmsprop", .lr = 0.1, .momentum = 0.4});
  all.push_back({.type = "rmsprop", .lr = 0.1, .momentum = 0.4, .centered = true});
  all.push_back({.type = "rmsprop", .lr = 0.1, .centered = true});
  all.push_back({.type = "adagrad", .lr = 0.1, .lr_decay = 0.2, .initial_accumulator_value = 0.5});
  return all;
}

TEST(StandardForm, OptimizersMatch) {
  const OnnxTypeRules rules;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const OptimizerOptions& options : AllOptimizers()) {
      for (const int64_t step : {1, 2, 7}) {
        Graph graph;
        GraphBuilder builder(graph, rules);
        std::map<ValueId, ValueId> gradients;
        std::map<ValueId, Tensor> feeds;
        uint64_t key = 7;
        for (const char* name : {"w", "v"}) {
          const Shape shape{3, 4};
          const ValueId parameter = graph.AddData(name, Drawn(dtype, shape, -1, 1, ++key), Role::kParam);
          const ValueId gradient = graph.AddValue(std::string(name) + "_gradient", dtype, shape, Role::kInput);
          graph.inputs.push_back(gradient);
          feeds.emplace(gradient, Drawn(dtype, shape, -1, 1, ++key));
          gradients.emplace(parameter, gradient);
        }
        AddOptimizer(builder, options, gradients);
        const NodeId first = 0;
        std::vector<ValueId> olds, wanted;
        for (const Value& value : graph.values()) {
          if (value.role == Role::kState) {
            // A squared average gradient must stay below the average square.
            const double most = value.name.ends_with("grad_avg") ? 0.1 : 0.5;
            const double least = value.name.ends_with("grad_avg") ? 0.0 : 0.2;
            feeds.insert_or_assign(value.id, step == 1 ? Tensor(dtype, value.shape) : Drawn(dtype, value.shape, least, most, ++key));
          }
          if (value.next_of == kNoValue) continue;
          olds.push_back(value.next_of);
          wanted.push_back(value.id);
        }
        const bool wide = dtype == DType::kFloat64;
        feeds.emplace(graph.Find(wide ? kStepLr64 : kStepLr), wide ? Tensor::Scalar<double>(0.1) : Tensor::Scalar<float>(0.1F));
        feeds.emplace(graph.Find(kStepNumber), Tensor::Scalar<int64_t>(step));
        const std::vector<Tensor> own = Interpret(graph, feeds, wanted);
        ApplyStandardForm(builder, first);
        EXPECT_FALSE(HasOwn(graph)) << options.type;
        std::map<ValueId, ValueId> next;
        for (const Value& value : graph.values()) {
          if (value.next_of == kNoValue) continue;
          EXPECT_TRUE(next.emplace(value.next_of, value.id).second);
        }
        std::vector<ValueId> standard;
        for (const ValueId old : olds) standard.push_back(next.at(old));
        ExpectNear(Interpret(graph, feeds, standard), own, options.type + " at " + std::to_string(step),
                   dtype == DType::kFloat32 ? 2e-6 : 1e-7);
      }
    }
  }
}

TEST(StandardForm, LossesOverClassesMatch) {
  const OnnxTypeRules rules;
  for (const bool weighted : {false, true}) {
    for (const double smoothing : {0.0, 0.3}) {
      for (const bool mean : {false, true}) {
        for (const char* op : {"CrossEntropy", "Nll"}) {
          Graph graph;
          GraphBuilder builder(graph, rules);
          const ValueId scores = graph.AddValue("scores", DType::kFloat32, Shape{5, 3}, Role::kInput);
          const ValueId target = graph.AddValue("target", DType::kInt64, Shape{5}, Role::kInput);
          graph.inputs = {scores, target};
          const ValueId weight = weighted ? builder.Constant(Tensor::From<float>({1, 2, 0.5f}, Shape{3})) : kNoValue;
          Attributes attributes{{"ignore_index", int64_t{1}}};
          if (op == std::string("CrossEntropy")) attributes.set("label_smoothing", smoothing);
          const std::vector<ValueId> sums = builder.Ops(op, kGradloomDomain, {scores, target, weight}, 2 + (op[0] == 'C'), attributes);
          graph.outputs = mean ? std::vector<ValueId>{builder.Div(sums[0], sums[1])} : sums;
          const std::map<ValueId, Tensor> feeds{{scores, Drawn(DType::kFloat32, Shape{5, 3}, -3, 1, 5)},
                                                {target, Tensor::From<int64_t>({0, 1, 2, 2, 0}, Shape{5})}};
          const std::vector<Tensor> own = Interpret(graph, feeds, graph.outputs);
          ApplyStandardForm(builder, 0);
          EXPECT_FALSE(HasOwn(graph));
          ExpectNear(Interpret(graph, feeds, graph.outputs), own, op, 1e-6);
        }
      }
    }
  }
}

TEST(StandardForm, ReportsOperatorsWithoutStandardForm) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder builder(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, Shape{2}, Role::kInput);
  builder.set_origin("here");
  graph.outputs = {builder.Own("Copy", {x})};
  try {
    ApplyStandardForm(builder, 0);
    FAIL() << "it has a form";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find("Copy"), std::string::npos);
    EXPECT_NE(error.where().find("here"), std::string::npos);
  }
}

}  // namespace
}  // namespace gradloom

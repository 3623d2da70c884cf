// Casts next to views and losses: fewer values in float32, and the same results.
#include "compiler/passes/precision/fuse_casts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/precision/lower_precision.h"
#include "compiler/passes/simplify.h"
#include "tests/testing/graphs.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

// The bytes of float32 values of at least this many elements.
int64_t WideBytes(const Graph& graph, int64_t elements) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const Value& value = graph.value(id);
      if (value.dtype == DType::kFloat32 && value.shape.elements() >= elements) bytes += value.shape.elements() * 4;
    }
  }
  return bytes;
}

// Scores of sequences [2, 3, 7] and their cross entropy; with `fetched`, the scores are an output, too.
void Check(bool weighted, double smoothing, bool fetched) {
  SCOPED_TRACE((weighted ? "weighted " : "") + std::to_string(smoothing) + (fetched ? " fetched" : ""));
  std::mt19937 random(5);
  const OnnxTypeRules rules;
  Graph graph;
  B b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, {2, 3, 4}, Role::kInput);
  const ValueId target = graph.AddValue("t", DType::kInt64, {6}, Role::kInput);
  graph.inputs = {x, target};
  const ValueId w = graph.AddData("w", RandomTensor(random, {4, 7}), Role::kParam);
  const ValueId scores = b.Op("MatMul", {x, w});
  const NodeId first_loss_node = graph.next_node_id();
  const ValueId weights = weighted ? graph.AddData("weights", RandomTensor(random, {7}), Role::kConst) : kNoValue;
  const std::vector<ValueId> sums = b.Ops("CrossEntropy", kGradloomDomain, {b.Reshape(scores, {6, 7}), target, weights}, 3,
                                          {{"label_smoothing", smoothing}, {"ignore_index", int64_t{-100}}});
  const ValueId loss = b.Div(sums[0], sums[1]);
  graph.outputs = {loss};
  if (fetched) graph.outputs.push_back(scores);
  LowerPrecision(b, DType::kBfloat16, LossNodes(first_loss_node));
  const ValueId parameters[] = {w};
  for (const auto& [of, gradient] : Differentiate(b, loss, parameters)) graph.outputs.push_back(b.Op("Identity", {gradient}));
  Simplify(graph);
  const std::map<ValueId, Tensor> feeds = {{x, RandomTensor(random, {2, 3, 4})},
                                           {target, Tensor::From<int64_t>({0, 6, -100, 3, 3, 1}, {6})}};
  const std::vector<ValueId> wanted = graph.outputs;
  const std::vector<Tensor> before = Interpret(graph, feeds, wanted);
  FuseCasts(b, false);
  VerifyGraph(graph);
  EXPECT_EQ(Count(graph, "CrossEntropyLogSum"), fetched ? 0 : 1);
  EXPECT_EQ(Count(graph, "CrossEntropyLogSumGrad"), fetched ? 0 : 1);
  if (!fetched) {
    EXPECT_EQ(WideBytes(graph, 6 * 7), 0);
  }
  const std::vector<Tensor> after = Interpret(graph, feeds, wanted);
  for (size_t k = 0; k < wanted.size(); ++k) {
    for (int64_t i = 0; i < before[k].elements(); ++i) {
      const double value = ElementAsDouble(before[k].view(), i);
      // A gradient may round to the next number of 16 bits.
      EXPECT_NEAR(value, ElementAsDouble(after[k].view(), i), 1e-5 + 0.01 * std::fabs(value)) << "output " << k << " element " << i;
    }
  }
}

TEST(FuseCasts, CrossEntropyOfNarrowScores) {
  for (bool weighted : {false, true}) {
    for (double smoothing : {0.0, 0.1}) {
      for (bool fetched : {false, true}) Check(weighted, smoothing, fetched);
    }
  }
}

// A file may have any number of views after each other. Every value is visited once, and no name grows with their number.
TEST(FuseCasts, PassesChainsOfViews) {
  const OnnxTypeRules rules;
  Graph graph;
  B b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, {2, 6}, Role::kInput);
  graph.inputs = {x};
  constexpr int kViews = 1000;
  const auto viewed = [&](ValueId id) {
    for (int i = 0; i < kViews; ++i) id = b.Reshape(id, i % 2 == 0 ? Shape{3, 4} : Shape{2, 6});
    return id;
  };
  // Views of a value that was widened, and then of one that is narrowed behind them.
  const ValueId narrow = b.Op("Neg", {b.Cast(x, DType::kBfloat16)});
  const ValueId wide = b.Op("Exp", {viewed(b.Cast(narrow, DType::kFloat32))});
  graph.outputs = {b.Op("Neg", {b.Cast(viewed(wide), DType::kBfloat16)})};
  FuseCasts(b, false);
  VerifyGraph(graph, &rules);
  ASSERT_EQ(graph.nodes.size(), size_t{2 * kViews + 6});
  int casts = 0;
  for (const Node& node : graph.nodes) {
    casts += node.op == "Cast" ? 1 : 0;
    if (node.op == "Reshape") {
      EXPECT_EQ(graph.value(node.outputs[0]).dtype, DType::kBfloat16);
    }
  }
  EXPECT_EQ(casts, 3);
  EXPECT_EQ(graph.nodes[size_t{kViews + 2}].op, "Cast");
  EXPECT_EQ(graph.nodes[size_t{kViews + 4}].op, "Cast");
  const auto longest = std::ranges::max(graph.values(), {}, [](const Value& value) { return value.name.size(); });
  EXPECT_LT(longest.name.size(), 64U);
}

}  // namespace
}  // namespace gradloom

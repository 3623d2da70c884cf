// Fused graphs compute what they computed before.
#include "compiler/passes/fusion/fuse_pointwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "kernels/catalog/pointwise.h"
#include "tests/oracle/random_graph.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

TEST(FusePointwise, FusesAChainAndKeepsValuesReadOutside) {
  const OnnxTypeRules rules;
  Graph graph;
  const ValueId x = graph.AddValue("x", DType::kFloat32, {4, 3}, Role::kInput), w = graph.AddValue("w", DType::kFloat32, {3}, Role::kInput);
  graph.inputs = {x, w};
  GraphBuilder b(graph, rules);
  const ValueId sum = b.Add(b.Scale(x, 2.0), w);
  const ValueId hidden = b.Op("Tanh", {sum});
  const ValueId positive = b.Op("Greater", {hidden, b.Scalar(0.0, DType::kFloat32)});
  const ValueId y = b.Where(positive, hidden, b.Neg(hidden));
  const ValueId total = b.ReduceSum(y, {1}, false);
  graph.outputs = {total, hidden, positive};
  FusePointwise(graph);
  ASSERT_EQ(graph.nodes.size(), 2u);
  const Node& fused = graph.nodes[0];
  EXPECT_EQ(fused.op, "Fused");
  EXPECT_EQ(fused.inputs, (std::vector<ValueId>{x, w}));
  EXPECT_EQ(fused.outputs, (std::vector<ValueId>{hidden, positive, y}));
  EXPECT_EQ(fused.attributes.Strings("functions"), (std::vector<std::string>{"Mul", "Add", "Tanh", "Greater", "Neg", "Where"}));
  EXPECT_EQ(fused.attributes.Floats("constants"), (std::vector<double>{2.0, 0.0}));
  EXPECT_EQ(graph.nodes[1].op, "ReduceSum");
}

TEST(FusePointwise, StopsAtOtherReaders) {
  const OnnxTypeRules rules;
  Graph graph;
  const ValueId x = graph.AddValue("x", DType::kFloat32, {3, 3}, Role::kInput);
  graph.inputs = {x};
  GraphBuilder b(graph, rules);
  const ValueId a = b.Op("Exp", {b.Neg(x)});
  const ValueId product = b.MatMul(a, x);
  // Reads a value of the first group, and a value that depends on it through the product.
  const ValueId y = b.Add(b.Mul(product, a), a);
  graph.outputs = {y};
  FusePointwise(graph);
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[0].op, "Fused");
  EXPECT_EQ(graph.nodes[1].op, "MatMul");
  EXPECT_EQ(graph.nodes[2].op, "Fused");
}

TEST(FusePointwise, RandomTrainingGraphs) {
  const OnnxTypeRules rules;
  const uint64_t first = TestSeed();
  int groups = 0;
  for (uint64_t seed = first; seed < first + 60; ++seed) {
    RandomGraph made = MakeRandomGraph(seed, 5 + static_cast<int>(seed % 60), rules);
    Graph& graph = *made.graph;
    GraphBuilder b(graph, rules);
    std::vector<ValueId> wanted = {made.loss};
    for (const auto& [parameter, gradient] : Differentiate(b, made.loss, made.parameters)) wanted.push_back(gradient);
    graph.outputs = wanted;
    const std::vector<Tensor> before = Interpret(graph, made.feeds, wanted);
    FusePointwise(graph);
    for (const Node& node : graph.nodes) groups += node.op == "Fused" ? 1 : 0;
    const std::vector<Tensor> after = Interpret(graph, made.feeds, wanted);
    for (size_t k = 0; k < wanted.size(); ++k) {
      for (int64_t i = 0; i < before[k].elements(); ++i) {
        const double a = ElementAsDouble(before[k].view(), i), c = ElementAsDouble(after[k].view(), i);
        ASSERT_NEAR(a, c, 1e-5 * (1 + std::fabs(a))) << "seed " << seed << " value " << k;
      }
    }
  }
  EXPECT_GT(groups, 60);
}

TEST(PointwiseProgram, RejectsInvalidAttributes) {
  PointwiseProgram program;
  program.num_inputs = 1;
  program.outputs = {program.Emit(PointwiseOp::kExp, 0)};
  const Attributes good = program.ToAttributes();
  EXPECT_EQ(PointwiseProgram::FromAttributes(good, 1), program);
  const auto expect_refused = [&](const std::string& name, Attribute value) {
    Attributes bad = good;
    bad.set(name, std::move(value));
    EXPECT_THROW(PointwiseProgram::FromAttributes(bad, 1), Error) << name;
  };
  expect_refused("functions", std::vector<std::string>{"system"});
  expect_refused("operands", std::vector<int64_t>{1, -1, -1});   // its own result
  expect_refused("operands", std::vector<int64_t>{0, 0, -1});    // one operand too many
  expect_refused("operands", std::vector<int64_t>{-1, -1, -1});  // no operand
  expect_refused("results", std::vector<int64_t>{0});            // an input
  expect_refused("results", std::vector<int64_t>{2});
  expect_refused("results", std::vector<int64_t>{});
}

}  // namespace
}  // namespace gradloom

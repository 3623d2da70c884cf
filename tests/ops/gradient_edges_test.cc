#include "tests/ops/gradient_edges.h"

#include <cmath>

#include "compiler/onnx/type_rules.h"
#include "compiler/ops/flat_roots.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/differentiate.h"
#include "gtest/gtest.h"

namespace gradloom {
namespace {

void Check(const GradientEdge& edge) {
  const OnnxTypeRules rules;
  OpProgram program = BuildOpCase(edge.op_case, rules, DType::kFloat64);
  GraphBuilder b(*program.graph, rules);
  const ValueId loss = b.ReduceSum(program.outputs[0], {}, /*keepdims=*/false);
  const auto gradients = Differentiate(b, loss, program.wanted);
  ASSERT_EQ(program.wanted.size(), edge.gradients.size());
  for (size_t k = 0; k < edge.gradients.size(); ++k) {
    ASSERT_TRUE(gradients.contains(program.wanted[k]));
    const Tensor got = Interpret(*program.graph, program.feeds, std::vector<ValueId>{gradients.at(program.wanted[k])})[0];
    const std::vector<double>& want = edge.gradients[k];
    ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = got.as<double>()[i];
      EXPECT_TRUE(value == want[i] || std::fabs(value - want[i]) < 1e-9)
          << "operand " << k << "[" << i << "]: " << value << ", not " << want[i];
    }
  }
}

TEST(GradientEdges, MatchPyTorch) {
  for (const GradientEdge& edge : GradientEdges()) {
    SCOPED_TRACE(edge.op_case.Name());
    Check(edge);
  }
}

TEST(GradientEdges, MatchPyTorchAtInfinities) {
  for (const GradientEdge& edge : GradientsAtInfinities()) {
    SCOPED_TRACE(edge.op_case.Name());
    Check(edge);
  }
}

// A value that is multiplied by itself again and again is looked at once, not once for each way that leads to it.
TEST(FlatRoots, ValuesUsedManyTimes) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, Shape{3}, Role::kInput);
  const ValueId squares = b.ReduceSum(b.Mul(x, x), {}, /*keepdims=*/false);
  ValueId power = squares;
  for (int i = 0; i < 60; ++i) power = b.Mul(power, power);
  EXPECT_TRUE(RootIsFlatAtZero(graph, squares));
  EXPECT_TRUE(RootIsFlatAtZero(graph, power));
  EXPECT_FALSE(RootIsFlatAtZero(graph, b.Mul(power, x)));
}

}  // namespace
}  // namespace gradloom

#include "tests/ops/gradient_edges.h"

#include <cmath>

#include "compiler/onnx/type_rules.h"
#include "compiler/ops/flat_roots.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "gtest/gtest.h"

namespace gradloom {
namespace {

// `given`: the gradient of each element of the first output.
void Check(const GradientEdge& edge, DType dtype = DType::kFloat64, double given = 1) {
  const OnnxTypeRules rules;
  OpProgram program = BuildOpCase(edge.op_case, rules, dtype);
  GraphBuilder b(*program.graph, rules);
  const ValueId loss = b.ReduceSum(b.Scale(program.outputs[0], given), {}, /*keepdims=*/false);
  const auto gradients = Differentiate(b, loss, program.wanted);
  ASSERT_EQ(program.wanted.size(), edge.gradients.size());
  for (size_t k = 0; k < edge.gradients.size(); ++k) {
    ASSERT_TRUE(gradients.contains(program.wanted[k]));
    const Tensor got = Interpret(*program.graph, program.feeds, std::vector<ValueId>{gradients.at(program.wanted[k])})[0];
    ASSERT_EQ(got.dtype(), dtype);
    const std::vector<double>& want = edge.gradients[k];
    ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = ElementAsDouble(got.view(), static_cast<int64_t>(i));
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

// In 16 bits the gradient has the precision of one rounding. The square of 300 overflows float16.
TEST(GradientEdges, In16Bits) {
  const Attributes tanh = {{"approximate", std::string("tanh")}};
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Check({{"Gelu", {Fed({-300, 0, 300}, {3})}, tanh}, {{0, 0.5, 1}}}, dtype);
    Check({{"Gelu", {Fed({-300, 0, 300}, {3})}}, {{0, 0.5, 1}}}, dtype);
    const auto rounded = [&](double x) { return ElementAsDouble(Converted(Tensor::Scalar(x).view(), dtype).view(), 0); };
    // With 1 / 49, 1 / 3 and gamma rounded first, these would be other numbers.
    Check({{"GlobalAveragePool", {In({1, 1, 7, 7})}}, {std::vector<double>(49, rounded(1.5 / 49))}}, dtype, 1.5);
    Check({{"Selu", {Fed({1}, {1})}}, {{rounded(1.875 * 1.05070102214813232421875)}}}, dtype, 1.875);
    const std::vector<double> share = {rounded(1.25 / 3)};
    Check({{"Mean", {In({1}), In({1}), In({1})}}, {share, share, share}}, dtype, 1.25);
  }
  // As many points have a reciprocal of few digits in float16.
  Check({{"GlobalAveragePool", {In({1, 1, 300, 300})}}, {std::vector<double>(90000, 0.0011110305786132812)}}, DType::kFloat16, 100);
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

// As simplify writes a cube: only that of an absolute value is flat where it is 0, and not the product of one with another square.
TEST(FlatRoots, Cubes) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, Shape{3}, Role::kInput);
  const ValueId y = graph.AddValue("y", DType::kFloat32, Shape{3}, Role::kInput);
  const auto is_flat = [&](ValueId base, ValueId squared) {
    return RootIsFlatAtZero(graph, b.ReduceSum(b.Mul(b.Mul(squared, squared), base), {}, /*keepdims=*/false));
  };
  const ValueId absolute = b.Op("Abs", {x});
  EXPECT_TRUE(is_flat(absolute, absolute));
  EXPECT_FALSE(is_flat(x, x));
  EXPECT_FALSE(is_flat(absolute, y));
}

// The divisor of a cosine with fixed vectors: each row has its own factor.
TEST(FlatRoots, TimesConstants) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, Shape{2}, Role::kInput);
  const ValueId factors = graph.AddData("factors", Tensor::From<float>({3, 5}, Shape{2}), Role::kConst);
  const ValueId squares = b.ReduceSum(b.Mul(x, x), {}, /*keepdims=*/true);
  EXPECT_TRUE(RootIsFlatAtZero(graph, b.Mul(squares, factors)));
  EXPECT_TRUE(RootIsFlatAtZero(graph, b.Mul(factors, squares)));
  EXPECT_TRUE(RootIsFlatAtZero(graph, b.Div(squares, factors)));
  EXPECT_FALSE(RootIsFlatAtZero(graph, b.Div(factors, squares)));
  EXPECT_FALSE(RootIsFlatAtZero(graph, b.Mul(x, factors)));
}

}  // namespace
}  // namespace gradloom

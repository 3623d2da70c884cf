// Gradients where a derivative does not exist or a formula breaks down: ties, kinks, zeros, infinities.
// The expected values were printed by PyTorch 2.15.0 in float64, with gradients of 1 for the outputs.
#include <cmath>
#include <limits>

#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/differentiate.h"
#include "gtest/gtest.h"
#include "tests/ops/op_case.h"

namespace gradloom {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Edge {
  OpCase op_case;
  std::vector<std::vector<double>> gradients;  // one for each fed floating operand
};

OpOperand V(std::vector<double> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Fed(std::move(values), Shape{n});
}

std::vector<Edge> PointwiseEdges() {
  return {
      {{"Relu", {V({-1, 0, 1})}}, {{0, 0, 1}}},
      {{"Abs", {V({-1, 0, 1})}}, {{-1, 0, 1}}},
      {{"LeakyRelu", {V({-1, 0, 1})}, {{"alpha", 0.25}}}, {{0.25, 0.25, 1}}},
      {{"PRelu", {V({-1, 0, 1}), V({0.25})}}, {{0.25, 0.25, 1}, {-1}}},
      {{"Elu", {V({-1, 0, 1})}, {{"alpha", 2.0}}}, {{0.7357588823428847, 2, 1}}},
      {{"Celu", {V({-1, 0, 1})}, {{"alpha", 2.0}}}, {{0.6065306597126334, 1, 1}}},
      {{"Selu", {V({0, 1})}, {{"alpha", 1.6732632423543772}, {"gamma", 1.0507009873554805}}}, {{1.7580993408473766, 1.0507009873554805}}},
      {{"HardSigmoid", {V({-3, 0, 3})}, {{"alpha", 0.1666666716337204}}}, {{0, 0.1666666716337204, 0}}},
      {{"HardSwish", {V({-3, 0, 3})}}, {{0, 0.5, 1}}},
      {{"ThresholdedRelu", {V({0.5, 1, 2})}}, {{0, 0, 1}}},
      {{"Shrink", {V({-0.5, 0.5, 1})}, {{"bias", 0.5}}}, {{0, 0, 1}}},
      {{"Softsign", {V({0})}}, {{1}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Fixed({-1}, {}), Fixed({1}, {})}}, {{0, 0, 1, 0, 0}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Fixed({-1}, {})}}, {{0, 0, 1, 1, 1}}},
      {{"Clip", {V({-2, -1, 0, 1, 2}), Absent(), Fixed({1}, {})}}, {{1, 1, 1, 0, 0}}},
      {{"Sqrt", {V({0, 4})}}, {{kInf, 0.25}}},
      {{"Softplus", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
      {{"Sigmoid", {V({-1000, 0, 1000})}}, {{0, 0.25, 0}}},
      {{"Gelu", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
      {{"Gelu", {V({-1000, 0, 1000})}, {{"approximate", std::string("tanh")}}}, {{0, 0.5, 1}}},
      {{"Mish", {V({-1000, 0, 1000})}}, {{0, 0.6, 1}}},
      {{"Swish", {V({-1000, 0, 1000})}}, {{0, 0.5, 1}}},
  };
}

std::vector<Edge> BinaryEdges() {
  return {
      {{"Max", {V({1, 2, 3}), V({2, 2, 2})}}, {{0, 0.5, 1}, {1, 0.5, 0}}},
      {{"Min", {V({1, 2, 3}), V({2, 2, 2})}}, {{1, 0.5, 0}, {0, 0.5, 1}}},
      // Three operands, as torch.stack(...).amax(0) has it.
      {{"Max", {V({1, 2}), V({2, 2}), V({0, 2})}}, {{0, 1.0 / 3}, {1, 1.0 / 3}, {0, 1.0 / 3}}},
      {{"Pow", {V({0, 0, 0, 2}), V({0, 1, 2, 0})}}, {{0, 1, 0, 0}, {0, 0, 0, 0.6931471805599453}}},
      {{"Pow", {V({-2, -2}), Fixed({2, 3}, {2})}}, {{-4, 12}}},
      {{"Pow", {V({0, 4}), Fixed({0.5}, {})}}, {{kInf, 0.25}}},
      {{"Div", {V({1, 1}), V({0, 2})}}, {{kInf, 0.5}, {-kInf, -0.25}}},
      {{"Mod", {V({5, -5}), V({3, 3})}, {{"fmod", int64_t{1}}}}, {{1, 1}, {-1, 1}}},
  };
}

std::vector<Edge> OtherEdges() {
  return {
      {{"ReduceMax", {Fed({1, 3, 3, 2, 2, 2}, {2, 3}), Ints({1})}}, {{0, 0.5, 0.5, 1.0 / 3, 1.0 / 3, 1.0 / 3}}},
      {{"ReduceMin", {Fed({1, 1, 3, 2, 2, 2}, {2, 3}), Ints({1})}}, {{0.5, 0.5, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3}}},
      {{"ReduceL2", {V({0, 0})}}, {{0, 0}}},
      {{"ReduceL1", {V({0, -1})}}, {{0, -1}}},
      {{"ReduceProd", {V({0, 2, 3})}}, {{6, 0, 0}}},
      {{"ReduceLogSumExp", {V({-kInf, 0, 0})}}, {{0, 0.5, 0.5}}},
      {{"CumProd", {V({2, 0, 3, 0}), Int(0)}}, {{1, 8, 0, 0}}},
      {{"ScatterElements", {V({1, 5}), Fed(Tensor::From<int64_t>({0, 0, 1}, {3})), V({1, 1, 5})}, {{"reduction", std::string("max")}}},
       {{1.0 / 3, 0.5}, {1.0 / 3, 1.0 / 3, 0.5}}},
      // Of equal elements the first are chosen here; which, is nobody's promise.
      {{"TopK", {V({2, 2, 1, 2}), Ints({2})}, {}, "", 2}, {{1, 1, 0, 0}}},
  };
}

void Check(const Edge& edge) {
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

TEST(GradientEdges, AsPyTorch) {
  for (const auto& edges : {PointwiseEdges(), BinaryEdges(), OtherEdges()}) {
    for (const Edge& edge : edges) {
      SCOPED_TRACE(edge.op_case.Name());
      Check(edge);
    }
  }
}

}  // namespace
}  // namespace gradloom

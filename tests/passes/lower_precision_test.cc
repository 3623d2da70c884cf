// Which operators mixed precision computes in 16 bits, and which stay in float32.
#include "compiler/passes/precision/lower_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/simplify.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

class LowerPrecisionTest : public testing::TestWithParam<DType> {
 protected:
  LowerPrecisionTest() : b(graph, rules) {}

  ValueId Input(const std::string& name, Shape shape) {
    const ValueId id = graph.AddValue(name, DType::kFloat32, std::move(shape), Role::kInput);
    graph.inputs.push_back(id);
    return id;
  }
  ValueId Parameter(const std::string& name, const Shape& shape) {
    Tensor data(DType::kFloat32, shape);
    for (float& x : data.as<float>()) x = 0.5F;
    return graph.AddData(name, std::move(data), Role::kParam);
  }
  void Lower(const LossNodes& loss = {}) {
    LowerPrecision(b, GetParam(), loss);
    VerifyGraph(graph);
  }
  // The type of the first floating-point operand of each operator, in the order of the nodes.
  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    for (const Node& node : graph.nodes) {
      if (node.op != "Cast") types.push_back(node.op + ":" + (graph.value(node.inputs[0]).dtype == GetParam() ? "low" : "wide"));
    }
    return types;
  }
  int Casts() const {
    return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == "Cast"; }));
  }

  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b;
};

using Strings = std::vector<std::string>;

TEST_P(LowerPrecisionTest, LowersProductsAndTheNodesBetween) {
  const ValueId x = Input("x", Shape{2, 3, 8, 8});
  const ValueId first = b.Op("Conv", {x, Parameter("w1", Shape{4, 3, 3, 3})}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId norm =
      b.Ops("BatchNormTrain", kGradloomDomain, {first, Parameter("s", Shape{4}), Parameter("b", Shape{4})}, 4, {{"epsilon", 1e-5}})[0];
  const ValueId relu = b.Op("Relu", {norm});
  const ValueId second = b.Op("Conv", {relu, Parameter("w2", Shape{4, 4, 1, 1})});
  const ValueId sum = b.Add(second, relu);
  const ValueId pooled = b.Op("GlobalAveragePool", {sum});
  const ValueId logits = b.Op("Gemm", {b.Op("Flatten", {pooled}), Parameter("w3", Shape{4, 5}), Parameter("b3", Shape{5})});
  const ValueId y = b.Op("Softmax", {logits});
  graph.outputs = {y, logits};
  Lower();
  EXPECT_EQ(Types(), (Strings{"Conv:low", "BatchNormTrain:low", "Relu:low", "Conv:low", "Add:low", "GlobalAveragePool:low", "Flatten:low",
                              "Gemm:low", "Softmax:wide"}));
  // x, the three weights and the bias of the product are cast down; the logits are cast up, once for both readers.
  EXPECT_EQ(Casts(), 6);
  // The outputs are the same values as before.
  EXPECT_EQ(graph.outputs, (std::vector<ValueId>{y, logits}));
  EXPECT_EQ(graph.value(logits).dtype, DType::kFloat32);
  // The scale, bias and statistics of a normalization stay float32.
  for (const Node& node : graph.nodes) {
    if (node.op != "BatchNormTrain") continue;
    for (size_t i : {1, 2}) EXPECT_EQ(graph.value(node.inputs[i]).dtype, DType::kFloat32);
    for (size_t i : {1, 2, 3}) EXPECT_EQ(graph.value(node.outputs[i]).dtype, DType::kFloat32);
  }
}

TEST_P(LowerPrecisionTest, ParameterGradientsAreFloat32) {
  const ValueId x = Input("x", Shape{2, 3}), w = Parameter("w", Shape{3, 4}), v = Parameter("v", Shape{4, 1});
  const ValueId loss = b.ReduceSum(b.MatMul(b.Op("Tanh", {b.MatMul(x, w)}), v), {}, false);
  graph.outputs = {loss};
  Lower();
  const auto gradients = Differentiate(b, loss, std::vector<ValueId>{w, v});
  VerifyGraph(graph);
  for (const auto& [parameter, gradient] : gradients) EXPECT_EQ(graph.value(gradient).dtype, DType::kFloat32);
  // All products of the backward phase are in 16 bits.
  for (const Node& node : graph.nodes) {
    EXPECT_TRUE(node.op != "MatMul" || graph.value(node.inputs[0]).dtype == GetParam());
  }
}

TEST_P(LowerPrecisionTest, NodesWithFloat32OperandsStayFloat32) {
  const ValueId x = Input("x", Shape{2, 4});
  const ValueId product = b.MatMul(x, Parameter("w", Shape{4, 4}));
  const ValueId sum = b.Add(product, b.Op("Exp", {x}));
  graph.outputs = {sum};
  Lower();
  EXPECT_EQ(Types(), (Strings{"MatMul:low", "Exp:wide", "Add:wide"}));
}

// Like the powers that they were before simplification: 300 * 300 overflows float16.
TEST_P(LowerPrecisionTest, SquaresStayFloat32) {
  const ValueId x = Input("x", Shape{2, 4});
  const ValueId product = b.MatMul(x, Parameter("w", Shape{4, 4}));
  const ValueId square = b.Op("Pow", {product, b.Scalar(2, DType::kFloat32)}), cube = b.Op("Pow", {product, b.Scalar(3, DType::kFloat32)});
  graph.outputs = {b.Add(square, cube)};
  Simplify(graph);
  Lower();
  EXPECT_EQ(Types(), (Strings{"MatMul:low", "Mul:wide", "Mul:wide", "Mul:wide", "Add:wide"}));
}

TEST_P(LowerPrecisionTest, ConstantsOutOfRangeKeepTheirNodesInFloat32) {
  const ValueId x = Input("x", Shape{2, 4});
  const ValueId product = b.MatMul(x, Parameter("w", Shape{4, 4}));
  // A mask, an epsilon, a zero and an infinity.
  graph.outputs = {b.Add(product, b.Scalar(-3.4028234663852886e38, DType::kFloat32)), b.Add(product, b.Scalar(1e-39, DType::kFloat32)),
                   b.Op("Max", {product, b.Scalar(0, DType::kFloat32)}),
                   b.Op("Min", {product, b.Scalar(std::numeric_limits<double>::infinity(), DType::kFloat32)})};
  Lower();
  EXPECT_EQ(Types(), (Strings{"MatMul:low", "Add:wide", "Add:wide", "Max:low", "Min:low"}));
}

TEST_P(LowerPrecisionTest, LossIsFloat32) {
  const ValueId x = Input("x", Shape{2, 4}), target = Input("t", Shape{2, 4});
  const ValueId product = b.MatMul(x, Parameter("w", Shape{4, 4}));
  const NodeId first = graph.next_node_id();
  const ValueId error = b.Op("Relu", {product});
  graph.outputs = {b.ReduceSum(b.Mul(b.Sub(error, target), error), {}, false)};
  Lower(LossNodes(first));
  EXPECT_EQ(Types(), (Strings{"MatMul:low", "Relu:wide", "Sub:wide", "Mul:wide", "ReduceSum:wide"}));
}

TEST_P(LowerPrecisionTest, LeavesGraphsWithoutProductsUnchanged) {
  const ValueId x = Input("x", Shape{2, 4});
  graph.outputs = {b.Op("Relu", {b.Add(x, Parameter("b", Shape{4}))})};
  Lower();
  EXPECT_EQ(Casts(), 0);
}

TEST_P(LowerPrecisionTest, OtherTypesAreLeftAlone) {
  const ValueId x = graph.AddValue("x", DType::kFloat64, Shape{2, 4}, Role::kInput);
  graph.inputs = {x};
  Tensor w(DType::kFloat64, Shape{4, 4});
  graph.outputs = {b.MatMul(x, graph.AddData("w", std::move(w), Role::kParam))};
  Lower();
  EXPECT_EQ(Casts(), 0);
}

TEST(AllowTf32, MarksFloat32ProductsAndTheirGradients) {
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, Shape{2, 3}, Role::kInput);
  graph.inputs = {x};
  Tensor data(DType::kFloat32, Shape{3, 4});
  const ValueId w = graph.AddData("w", std::move(data), Role::kParam);
  const ValueId loss = b.ReduceSum(b.MatMul(x, w), {}, false);
  graph.outputs = {loss};
  Differentiate(b, loss, std::vector<ValueId>{w});
  AllowTf32(graph);
  VerifyGraph(graph);
  int marked = 0;
  for (const Node& node : graph.nodes) {
    EXPECT_EQ(node.attributes.Int("allow_tf32", 0) == 1, node.op == "MatMul" || node.op == "Gemm") << node.op;
    marked += static_cast<int>(node.attributes.Int("allow_tf32", 0));
  }
  EXPECT_EQ(marked, 2);
}

// The node that replaces those of a GELU is one of the model, although the loss has been added by then.
TEST(LowerPrecision, LowersAFusedGelu) {
  std::mt19937 random(2);
  const Model model =
      ModelOf("g (float[N, 4] x) => (float[N, 4] y)\n<" + Weights(random, "w", {4, 4}) + ", " + Weights(random, "v", {4, 4}) +
              ", float root = {1.4142135}, float one = {1}, float half = {0.5}>\n"
              "{ h = MatMul (x, w)\n d = Div (h, root)\n e = Erf (d)\n p = Add (e, one)\n m = Mul (h, p)\n a = Mul (m, half)\n"
              "y = MatMul (a, v) }\n");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "y", .target = "t"}}, 1, {2});
  options.recipe.precision = Precision::kBfloat16;
  options.control.disabled = {"fuse_pointwise"};
  const Plan plan = Compile(model, options);
  const Program& program = plan.programs.front();
  int found = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op != "Gelu") continue;
    ++found;
    for (const Use& use : instruction.uses) EXPECT_EQ(program.buffers[static_cast<size_t>(use.buffer)].dtype, DType::kBfloat16);
  }
  EXPECT_GT(found, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, LowerPrecisionTest, testing::Values(DType::kBfloat16, DType::kFloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace gradloom

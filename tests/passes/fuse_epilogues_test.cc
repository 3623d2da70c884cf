// Graphs with launches merged for GPUs compute what they computed before.
#include "compiler/passes/fusion/fuse_epilogues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "compiler/passes/patterns/fuse_gelu.h"
#include "compiler/passes/precision/lower_precision.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/update/add_optimizer.h"
#include "compiler/passes/update/join_updates.h"
#include "tests/testing/graphs.h"

namespace gradloom {
namespace {

using B = GraphBuilder;

ValueId GeluNode(B& b, ValueId h) { return b.Op("Gelu", {h}, {{"approximate", std::string("tanh")}}); }

// The tanh approximation as torch.onnx writes it before opset 20, and as others do.
ValueId GeluByProducts(B& b, ValueId h) {
  const ValueId cubic = b.Scale(b.Mul(b.Mul(h, h), h), 0.044715);
  const ValueId t = b.Op("Tanh", {b.Scale(b.Add(h, cubic), 0.7978845608028654)});
  return b.Mul(b.Scale(h, 0.5), b.Add(t, b.Scalar(1, DType::kFloat32)));
}
ValueId GeluByPower(B& b, ValueId h) {
  const ValueId cube = b.Op("Pow", {h, b.Scalar(3, DType::kFloat32)});
  const ValueId t = b.Op("Tanh", {b.Scale(b.Add(h, b.Scale(cube, 0.044715)), 0.79788456)});
  return b.Scale(b.Mul(h, b.Add(b.Scalar(1, DType::kFloat32), t)), 0.5);
}

// A function of this differs from that of h only beyond 8.
ValueId Clipped(B& b, ValueId h) { return b.Op("Clip", {h, b.Scalar(-8, DType::kFloat32), b.Scalar(8, DType::kFloat32)}); }

struct Case {
  std::string name;
  std::function<ValueId(B& b, ValueId h)> activation;
  DType dtype = DType::kFloat32;
  int relus = 0, gelus = 0, gelu_gradients = 0, bias_gradients = 0;
};

const Case kCases[] = {
    {"a ReLU", [](B& b, ValueId h) { return b.Op("Relu", {h}); }, DType::kFloat32, 1, 0, 0, 2},
    {"a ReLU in 16 bits", [](B& b, ValueId h) { return b.Op("Relu", {h}); }, DType::kBfloat16, 1, 0, 0, 2},
    {"a ReLU of what is read", [](B& b, ValueId h) { return b.Add(b.Op("Relu", {h}), h); }, DType::kFloat32, 0, 0, 0, 2},
    {"a GELU", GeluNode, DType::kFloat16, 0, 1, 1, 1},
    {"a GELU of products", GeluByProducts, DType::kBfloat16, 0, 1, 1, 1},
    {"a GELU of a power", GeluByPower, DType::kBfloat16, 0, 1, 1, 1},
    {"a GELU of what is read", [](B& b, ValueId h) { return b.Add(GeluNode(b, h), h); }, DType::kBfloat16, 0, 0, 0, 2},
    {"a GELU in float32", GeluNode, DType::kFloat32, 0, 0, 0, 2},
    {"GELU's other form", [](B& b, ValueId h) { return b.Op("Gelu", {h}); }, DType::kBfloat16, 0, 0, 0, 2},
    {"a GELU of a clipped value", [](B& b, ValueId h) { return GeluByProducts(b, Clipped(b, h)); }, DType::kBfloat16, 0, 0, 0, 2},
    {"a GELU of something else", [](B& b, ValueId h) { return GeluByProducts(b, b.Scale(h, 1.25)); }, DType::kBfloat16, 0, 0, 0, 2},
};

void CheckCase(const Case& c, bool sequences, bool turned) {
  SCOPED_TRACE(c.name + (sequences ? ", of sequences" : "") + (turned ? ", turned weights" : ""));
  std::mt19937 random(3);
  const OnnxTypeRules rules;
  Graph graph;
  const ValueId x = graph.AddValue("x", DType::kFloat32, sequences ? Shape{3, 5, 16} : Shape{15, 16}, Role::kInput);
  graph.inputs = {x};
  const auto parameter = [&](const char* name, Shape shape) {
    return graph.AddData(name, RandomTensor(random, std::move(shape)), Role::kParam);
  };
  const ValueId w = parameter("w", turned ? Shape{24, 16} : Shape{16, 24}), bias = parameter("b", {24});
  const ValueId v = parameter("v", turned ? Shape{6, 24} : Shape{24, 6}), u = parameter("u", {6});
  B b(graph, rules);
  const Attributes attributes{{"transB", int64_t{turned}}};
  ValueId h = b.Op("Gemm", {sequences ? b.Reshape(x, {15, 16}) : x, w, bias}, attributes);
  if (sequences) h = b.Reshape(h, {3, 5, 24});
  const ValueId a = c.activation(b, h);
  const ValueId y = b.Op("Gemm", {sequences ? b.Reshape(a, {15, 24}) : a, v, u}, attributes);
  const NodeId first_loss_node = graph.next_node_id();
  const ValueId loss = b.ReduceSum(b.Op("Tanh", {y}), {}, false);
  graph.outputs = {loss};
  if (c.dtype != DType::kFloat32) {
    FuseGelu(graph);
    LowerPrecision(b, c.dtype, LossNodes(first_loss_node));
  }
  const ValueId parameters[] = {w, bias, v, u};
  for (const auto& [of, gradient] : Differentiate(b, loss, parameters)) graph.outputs.push_back(b.Op("Identity", {gradient}));
  Simplify(graph);
  const std::map<ValueId, Tensor> feeds = {{x, RandomTensor(random, b.shape(x))}};
  const std::vector<ValueId> wanted = graph.outputs;
  const std::vector<Tensor> before = Interpret(graph, feeds, wanted);
  FuseEpilogues(b);
  VerifyGraph(graph);
  EXPECT_EQ(Count(graph, "GemmRelu"), c.relus);
  EXPECT_EQ(Count(graph, "GemmGelu"), c.gelus);
  EXPECT_EQ(Count(graph, "GemmGeluGrad"), c.gelu_gradients);
  EXPECT_EQ(Count(graph, "GemmBiasGrad"), c.bias_gradients);
  const std::vector<Tensor> after = Interpret(graph, feeds, wanted);
  for (size_t k = 0; k < wanted.size(); ++k) {
    double largest = 0;
    for (int64_t i = 0; i < before[k].elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(before[k].view(), i)));
    // 16 bits: sums of 15 terms, each of which was rounded about ten times to 2^-9 before, and only once now.
    const double allowed = (c.dtype == DType::kFloat32 ? 1e-5 : 0.08) * largest;
    for (int64_t i = 0; i < before[k].elements(); ++i)
      ASSERT_NEAR(ElementAsDouble(before[k].view(), i), ElementAsDouble(after[k].view(), i), allowed) << "output " << k << " " << i;
  }
}

TEST(FuseEpilogues, KeepsResultsOfGraphs) {
  for (const Case& c : kCases) {
    for (bool sequences : {false, true}) {
      for (bool turned : {false, true}) CheckCase(c, sequences, turned);
    }
  }
}

// As exporters write both forms; and functions that are not GELU.
TEST(FuseGelu, FindsBothForms) {
  const auto erf = [](B& b, ValueId h, float scale) {
    const ValueId inner = b.Op("Erf", {b.Op("Div", {h, b.Constant(Tensor::From(std::vector<float>{scale}, Shape{}))})});
    return b.Op("Mul", {b.Op("Mul", {h, b.Op("Add", {inner, b.Constant(Tensor::From(std::vector<float>{1}, Shape{}))})}),
                        b.Constant(Tensor::From(std::vector<float>{0.5}, Shape{}))});
  };
  const auto form = [](auto&& write) {
    const OnnxTypeRules rules;
    Graph graph;
    B b(graph, rules);
    const ValueId x = graph.AddValue("x", DType::kFloat32, {3, 5}, Role::kInput);
    graph.inputs = {x};
    const ValueId h = b.Op("Relu", {x});
    graph.outputs = {write(b, h)};
    FuseGelu(graph);
    Simplify(graph);
    const Node& last = graph.nodes.back();
    return last.op == "Gelu" && graph.nodes.size() == 2 ? last.attributes.String("approximate", "") : last.op;
  };
  EXPECT_EQ(form(GeluByProducts), "tanh");
  EXPECT_EQ(form(GeluByPower), "tanh");
  EXPECT_EQ(form([&](B& b, ValueId h) { return erf(b, h, 1.41421356F); }), "none");
  EXPECT_EQ(form([&](B& b, ValueId h) { return erf(b, h, 1.4F); }), "Mul");
}

// The function of h is also one of the view, but a Gelu of h has h's shape.
TEST(FuseGelu, LooksThroughViewsToTheSameShape) {
  const OnnxTypeRules rules;
  Graph graph;
  B b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, {3, 5}, Role::kInput);
  graph.inputs = {x};
  const ValueId h = b.Op("Relu", {x});
  const ValueId flat = GeluByProducts(b, b.Reshape(h, {15}));
  graph.outputs = {flat, b.Add(b.Reshape(flat, {3, 5}), h)};
  FuseGelu(graph);
  VerifyGraph(graph, &rules);
  EXPECT_EQ(Count(graph, "Gelu"), 2);
  EXPECT_EQ(Count(graph, "Tanh"), 0);
}

TEST(FuseGelu, ReadsTheClippedOperand) {
  const OnnxTypeRules rules;
  Graph graph;
  B b(graph, rules);
  const ValueId x = graph.AddValue("x", DType::kFloat32, {3, 5}, Role::kInput);
  graph.inputs = {x};
  const ValueId h = b.Op("Neg", {x}), clipped = Clipped(b, h);
  graph.outputs = {GeluByProducts(b, clipped), b.Op("Exp", {h})};
  FuseGelu(graph);
  VerifyGraph(graph, &rules);
  const auto gelu = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == "Gelu"; });
  ASSERT_NE(gelu, graph.nodes.end());
  EXPECT_EQ(gelu->inputs[0], clipped);
}

TEST(JoinUpdates, ChangesNoBit) {
  std::mt19937 random(4);
  const OnnxTypeRules rules;
  // All but one parameter, 32 per launch; then at most 100 elements together.
  constexpr std::pair<int64_t, int> kLaunches[] = {{int64_t{1} << 20, 2}, {100, 10}};
  for (int run = 0; run < 12; ++run) {
    const char* const type = std::array{"sgd", "momentum", "adam", "rmsprop", "adamax", "lamb"}[static_cast<size_t>(run / 2)];
    const auto& [elements, launches] = kLaunches[run % 2];
    SCOPED_TRACE(std::string(type) + " " + std::to_string(elements));
    Graph graph;
    B b(graph, rules);
    std::map<ValueId, ValueId> gradients;
    std::map<ValueId, Tensor> feeds;
    // 40 parameters that are joined, one of them empty, and one that has too many elements.
    for (int i = 0; i < 41; ++i) {
      const Shape shape = i == 0 ? Shape{300, 300} : i == 1 ? Shape{0} : Shape{i};
      const ValueId parameter = graph.AddData("p" + std::to_string(i), RandomTensor(random, shape), Role::kParam);
      const ValueId gradient = graph.AddValue("g" + std::to_string(i), DType::kFloat32, shape, Role::kInput);
      graph.inputs.push_back(gradient);
      feeds.emplace(gradient, RandomTensor(random, shape));
      gradients.emplace(parameter, gradient);
    }
    OptimizerOptions options;
    options.type = type;
    options.weight_decay = 0.1;
    if (std::string(type) == "momentum") options.momentum = 0.9;
    AddOptimizer(b, options, gradients, {});
    std::vector<ValueId> wanted;
    for (const Value& value : graph.values()) {
      if (value.next_of != kNoValue) wanted.push_back(value.id);
      if (value.role == Role::kInput && value.dtype == DType::kInt64) feeds.emplace(value.id, Tensor::Scalar<int64_t>(3));
      if (value.role == Role::kInput && value.shape.rank() == 0 && value.dtype == DType::kFloat32)
        feeds.emplace(value.id, Tensor::Scalar<float>(0.01F));
      if (value.role == Role::kState && graph.data(value.id) == nullptr) graph.set_data(value.id, RandomTensor(random, value.shape));
    }
    const std::vector<Tensor> before = Interpret(graph, feeds, wanted);
    ProgramPlan plan;
    plan.device = DeviceKind::kCuda;
    JoinUpdates(graph, plan, 1000, elements);
    VerifyGraph(graph);
    EXPECT_EQ(Count(graph, "MultiTensorUpdate"), std::string(type) == "lamb" ? 0 : launches);
    const std::vector<Tensor> after = Interpret(graph, feeds, wanted);
    for (size_t k = 0; k < wanted.size(); ++k)
      EXPECT_EQ(std::memcmp(before[k].data(), after[k].data(), static_cast<size_t>(before[k].bytes())), 0) << graph.value(wanted[k]).name;
  }
}

}  // namespace
}  // namespace gradloom

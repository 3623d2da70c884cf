// The order of gradients changes no bit, and saves memory where the gradient of a weight is the last reader of an activation.
#include "compiler/passes/schedule/order_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"
#include "tests/passes/small_training.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// A product of x and w, whose gradients by both follow each other, that of x first.
struct Variant {
  bool reread = false;   // whether the backward pass reads x once more
  bool viewed = false;   // whether views are between the gradients
  bool sent = false;     // whether another device waits for the gradient of x
  bool fetched = false;  // whether x is fetched
};

int PositionOf(const Graph& graph, ValueId made) {
  const auto makes = [&](const Node& node) { return std::find(node.outputs.begin(), node.outputs.end(), made) != node.outputs.end(); };
  return static_cast<int>(std::find_if(graph.nodes.begin(), graph.nodes.end(), makes) - graph.nodes.begin());
}

// Returns whether the gradient of w comes first after the pass.
bool WeightFirst(const Variant& variant) {
  constexpr int64_t kRows = 64, kFrom = 32, kTo = 4;
  const OnnxTypeRules rules;
  Graph graph;
  GraphBuilder b(graph, rules);
  const ValueId in = graph.AddValue("in", DType::kFloat32, {kRows, kTo}, Role::kInput);
  const ValueId v = graph.AddValue("v", DType::kFloat32, {kTo, kFrom}, Role::kInput);
  const ValueId w = graph.AddValue("w", DType::kFloat32, {kFrom, kTo}, Role::kInput);
  graph.inputs = {in, v, w};
  const ValueId x = b.MatMul(in, v), y = b.MatMul(x, w);
  b.set_phase(Phase::kBackward);
  ValueId of_x = b.Op("Gemm", {y, w}, {{"transB", int64_t{1}}}), read = x;
  const ValueId made = of_x;
  if (variant.viewed) {
    of_x = b.Reshape(of_x, Shape{kRows, 1, kFrom});
    read = b.Reshape(b.Reshape(x, Shape{kRows * kFrom}), Shape{kRows, kFrom});
  }
  const ValueId of_w = b.Op("Gemm", {read, y}, {{"transA", int64_t{1}}});
  const ValueId result = b.Op("Relu", {of_x});
  graph.outputs = {of_w, b.ReduceSum(result, {0}, false)};
  if (variant.reread) graph.outputs.push_back(b.ReduceSum(x, {0}, false));
  if (variant.fetched) graph.outputs.push_back(x);
  if (variant.sent) {
    graph.AddNode({.op = "Send",
                   .domain = std::string(kGradloomDomain),
                   .inputs = {result},
                   .outputs = {},
                   .attributes = {{"peer", int64_t{0}}, {"tag", int64_t{0}}},
                   .phase = Phase::kBackward});
  }
  OrderGradients(graph);
  VerifyGraph(graph);
  return PositionOf(graph, of_w) < PositionOf(graph, made);
}

TEST(OrderGradients, PutsTheLastReaderOfAnActivationFirst) {
  EXPECT_TRUE(WeightFirst({}));
  EXPECT_TRUE(WeightFirst({.viewed = true}));
  EXPECT_FALSE(WeightFirst({.reread = true}));
  EXPECT_FALSE(WeightFirst({.fetched = true}));
  EXPECT_FALSE(WeightFirst({.sent = true}));
}

constexpr int64_t kRows = 128, kWidth = 64;

// Layers of random activations, some with a residual sum. The gradients of some activations read their results, those of others only the
// operands.
Model Net(std::mt19937& random, int layers) {
  const std::vector<std::string> activations = {"Relu", "Softplus", "Tanh", "Erf", "Sigmoid"};
  std::string weights = Weights(random, "v", {8, kWidth}, 0.3F) + ",\n" + Weights(random, "u", {kWidth, 2}, 0.3F), nodes;
  std::string at = "h";
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i);
    weights += ",\n" + Weights(random, "w" + n, {kWidth, kWidth}, 0.2F);
    nodes +=
        " a" + n + " = " + activations[random() % activations.size()] + " (" + at + ")\n m" + n + " = MatMul (a" + n + ", w" + n + ")\n";
    if (random() % 2 == 0) nodes += " r" + n + " = Add (m" + n + ", " + at + ")\n";
    at = (nodes.find(" r" + n + " ") != std::string::npos ? "r" : "m") + n;
  }
  return ModelOf("g (float[N, 8] x) => (float[N, 2] z)\n<" + weights + ">\n{\n h = MatMul (x, v)\n" + nodes + " z = MatMul (" + at +
                 ", u)\n}\n");
}

std::vector<Batch> Batches(std::mt19937& random) {
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{kRows, 8})}, {"target", Classes(random, kRows, 2)}});
  return batches;
}

int64_t BytesOf(const Model& model, CompileOptions options, bool ordered) {
  if (!ordered) options.control.disabled.emplace_back("order_gradients");
  return Compile(model, options).programs.at(0).transient_bytes;
}

TEST(OrderGradients, KeepsBitsInNoMoreMemory) {
  std::mt19937 random(static_cast<unsigned>(TestSeed()));
  for (int net = 0; net < 6; ++net) {
    const Model model = Net(random, 2 + net % 3);
    const std::vector<Batch> batches = Batches(random);
    for (int devices : {1, 2}) {
      SCOPED_TRACE("net " + std::to_string(net) + " on " + std::to_string(devices));
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {kRows});
      options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
      EXPECT_LE(BytesOf(model, options, true), BytesOf(model, options, false));
      const auto ordered = Train(model, options, batches);
      options.control.disabled = {"order_gradients"};
      ExpectSameBits(Train(model, options, batches), ordered);
    }
  }
}

// At the head of this net, the gradient of the last activation and that activation would exist together otherwise.
TEST(OrderGradients, SavesTheLargestActivation) {
  std::mt19937 random(3);
  const Model model = ModelOf("g (float[N, 8] x) => (float[N, 2] z)\n<" + Weights(random, "v", {8, kWidth}, 0.3F) + ",\n" +
                              Weights(random, "u", {kWidth, 2}, 0.3F) + ">\n{\n h = MatMul (x, v)\n a = Erf (h)\n z = MatMul (a, u)\n}\n");
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {kRows});
  options.recipe.fetch_gradients = options.recipe.fetch_outputs = false;
  const int64_t activation = kRows * kWidth * 4;
  EXPECT_LE(BytesOf(model, options, true), BytesOf(model, options, false) - activation * 9 / 10);
}

}  // namespace
}  // namespace gradloom

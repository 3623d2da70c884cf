// LSTM, GRU and RNN. Their gradients are operators of ours that take the forward operator's inputs and the gradients of its outputs,
// recompute the forward pass and go back through it. Their outputs are the gradients of the inputs that the attribute "wanted" lists. LSTM
// and GRU have training forms with one more output: what their gradients need of each step. A gradient that is given Y and that output does
// not recompute the forward pass (compiler/passes/fusion/keep_steps).
#include "compiler/ops/recurrent.h"

#include <array>
#include <string>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using Kind = RecurrentKind;

// All inputs except sequence_lens have a gradient.
constexpr int kLengths = 4;

int64_t DirectionsOf(const Node& node) {
  const std::string direction = node.attributes.String("direction", "forward");
  if (direction == "forward" || direction == "reverse") return 1;
  if (direction == "bidirectional") return 2;
  throw Error(ErrorCode::kAttr, "attribute 'direction' must be forward, reverse or bidirectional, got '" + Escaped(direction) + "'",
              Describe(node));
}

// Returns the types of Y, Y_h and Y_c, and checks everything that the kernels rely on.
std::vector<ValueType> Types(const Graph& graph, const Node& node, const Kind& kind) {
  ExpectFloating(graph, node, 0);
  for (int i : {0, 1, 2}) ExpectRank(graph, node, i, 3);
  const ValueType x = InputType(graph, node, 0);
  const DType dtype = x.dtype;
  const int64_t layout = node.attributes.Int("layout", 0);
  if (layout != 0 && layout != 1)
    throw Error(ErrorCode::kAttr, "attribute 'layout' must be 0 or 1, got " + std::to_string(layout), Describe(node));
  const bool batch_first = layout == 1;
  const int64_t steps = x.shape[batch_first ? 1 : 0], batch = x.shape[batch_first ? 0 : 1], input = x.shape[2];
  const int64_t directions = DirectionsOf(node);
  const int64_t hidden = InputType(graph, node, 2).shape[2];
  const int64_t named = node.attributes.Int("hidden_size", hidden);
  if (named != hidden || hidden == 0) {
    throw Error(ErrorCode::kShape,
                "attribute 'hidden_size' is " + std::to_string(named) + ", but R is " + InputType(graph, node, 2).ToString(),
                Describe(node), "hidden_size must be the last extent of R, and not 0");
  }
  const size_t activations = node.attributes.Strings("activations").size();
  if (activations != 0 && activations != static_cast<size_t>(kind.activations * directions)) {
    throw Error(ErrorCode::kAttr,
                "got " + std::to_string(activations) + " activations, expected " + std::to_string(kind.activations * directions),
                Describe(node));
  }
  ExpectInput(graph, node, 1, {dtype, {directions, kind.gates * hidden, input}});
  ExpectInput(graph, node, 2, {dtype, {directions, kind.gates * hidden, hidden}});
  if (HasInput(node, 3)) ExpectInput(graph, node, 3, {dtype, {directions, 2 * kind.gates * hidden}});
  if (HasInput(node, kLengths)) ExpectInput(graph, node, kLengths, {DType::kInt32, {batch}});
  const ValueType state{dtype, batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden}};
  if (HasInput(node, 5)) ExpectInput(graph, node, 5, state);
  if (kind.inputs > 6 && HasInput(node, 6)) ExpectInput(graph, node, 6, state);
  if (kind.inputs > 7 && HasInput(node, 7)) ExpectInput(graph, node, 7, {dtype, {directions, 3 * hidden}});
  const ValueType y{dtype, batch_first ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden}};
  return {y, state, state};
}

// The type of what a training form keeps for the gradient: the gates, followed by LSTM's cell state, or by the product with R that a linear
// GRU resets. Its element type is that of the computation.
ValueType KeptType(const Graph& graph, const Node& node, const Kind& kind) {
  const ValueType x = InputType(graph, node, 0), r = InputType(graph, node, 2);
  const bool more = kind.gates == 4 || (kind.gates == 3 && node.attributes.Int("linear_before_reset", 0) != 0);
  const DType dtype = DTypeBytes(x.dtype) == 2 ? DType::kFloat32 : x.dtype;
  return {dtype, {r.shape[0], x.shape[0], x.shape[1], (kind.gates + (more ? 1 : 0)) * r.shape[2]}};
}

template <const Kind& kKind>
std::vector<ValueType> TrainingTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, kKind.inputs, kKind.outputs + 1);
  std::vector<ValueType> types = Types(graph, node, kKind);
  types.resize(static_cast<size_t>(kKind.outputs));
  types.push_back(KeptType(graph, node, kKind));
  return OutputTypes(node, types);
}

template <const Kind& kKind>
std::vector<ValueType> ForwardTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, kKind.inputs, kKind.outputs);
  return OutputTypes(node, Types(graph, node, kKind));
}

template <const Kind& kKind>
std::vector<ValueType> GradientTypes(const Graph& graph, const Node& node) {
  const std::vector<int64_t> wanted = node.attributes.Ints("wanted");
  constexpr int kSavedY = kKind.inputs + kKind.outputs;
  ExpectArity(node, kSavedY, kSavedY + (kKind.training.empty() ? 1 : 2), static_cast<int>(wanted.size()));
  const std::vector<ValueType> outputs = Types(graph, node, kKind);
  if (HasInput(node, kSavedY)) ExpectInput(graph, node, kSavedY, outputs[0]);
  if (HasInput(node, kSavedY + 1)) ExpectInput(graph, node, kSavedY + 1, KeptType(graph, node, kKind));
  for (int i = 0; i < kKind.outputs; ++i) {
    if (HasInput(node, kKind.inputs + i)) ExpectInput(graph, node, kKind.inputs + i, outputs[static_cast<size_t>(i)]);
  }
  std::vector<ValueType> types;
  for (int64_t i : wanted) {
    if (i < 0 || i >= kKind.inputs || i == kLengths) {
      throw Error(ErrorCode::kAttr, "attribute 'wanted' has the invalid input index " + std::to_string(i), Describe(node));
    }
    types.push_back(InputType(graph, node, static_cast<int>(i)));
  }
  return types;
}

template <const Kind& kKind>
void Gradient(GradientContext& context) {
  std::vector<int64_t> wanted;
  for (int i = 0; i < kKind.inputs; ++i) {
    if (i != kLengths && context.needs(i)) wanted.push_back(i);
  }
  if (wanted.empty()) return;
  std::vector<ValueId> inputs;
  for (int i = 0; i < kKind.inputs; ++i) inputs.push_back(context.in(i));
  for (int i = 0; i < kKind.outputs; ++i) inputs.push_back(context.grad(i));
  Attributes attributes = context.attributes();
  attributes.set("wanted", wanted);
  const std::vector<ValueId> gradients = context.b.Ops(std::string(kKind.gradient), kGradloomDomain, std::move(inputs),
                                                       static_cast<int>(wanted.size()), std::move(attributes));
  for (size_t i = 0; i < wanted.size(); ++i) context.set(static_cast<int>(wanted[i]), gradients[i]);
}

// The products with W and R. The gradient computes them three times, including the forward pass if that was not kept.
template <const Kind& kKind, int kPasses>
Cost RecurrentCost(const Graph& graph, const Node& node) {
  const int passes = kPasses - (kPasses == 3 && HasInput(node, kKind.inputs + kKind.outputs) ? 1 : 0);
  const Shape &x = graph.value(node.inputs[0]).shape, &w = graph.value(node.inputs[1]).shape, &r = graph.value(node.inputs[2]).shape;
  return CostWithFlops(graph, node, 2.0 * passes * static_cast<double>(x[0] * x[1]) * static_cast<double>(w.elements() + r.elements()));
}

// Returns the letters (Op::samples) of the inputs, then of the outputs, in the order of Kind.
std::string SamplesOfInputs(const Node& node) { return node.attributes.Int("layout", 0) == 1 ? "0...000." : "1...011."; }
std::string SamplesOfOutputs(const Node& node) { return node.attributes.Int("layout", 0) == 1 ? "000" : "211"; }

void ShardRecurrent(ShardQuery& query) { ShardSamples(query, SamplesOfInputs(query.node()) + ">" + SamplesOfOutputs(query.node())); }

template <const Kind& kKind>
void ShardRecurrentGradient(ShardQuery& query) {
  ShardWantedGradients(query, SamplesOfInputs(query.node()).substr(0, kKind.inputs), SamplesOfOutputs(query.node()));
}

constexpr Op kOps[] = {
    {.name = kLstm.op,
     .since_version = 7,
     .traits = kProduct,
     .gradient = Gradient<kLstm>,
     .infer = ForwardTypes<kLstm>,
     .cost = RecurrentCost<kLstm, 1>,
     .shard = ShardRecurrent},
    {.name = kGru.op,
     .since_version = 7,
     .traits = kProduct,
     .gradient = Gradient<kGru>,
     .infer = ForwardTypes<kGru>,
     .cost = RecurrentCost<kGru, 1>,
     .shard = ShardRecurrent},
    {.name = kRnn.op,
     .since_version = 7,
     .traits = kProduct,
     .gradient = Gradient<kRnn>,
     .infer = ForwardTypes<kRnn>,
     .cost = RecurrentCost<kRnn, 1>,
     .shard = ShardRecurrent},
    {.name = kLstm.training, .domain = kGradloomDomain, .traits = kProduct, .infer = TrainingTypes<kLstm>, .cost = RecurrentCost<kLstm, 1>},
    {.name = kGru.training, .domain = kGradloomDomain, .traits = kProduct, .infer = TrainingTypes<kGru>, .cost = RecurrentCost<kGru, 1>},
    {.name = kLstm.gradient,
     .domain = kGradloomDomain,
     .traits = kProduct,
     .infer = GradientTypes<kLstm>,
     .cost = RecurrentCost<kLstm, 3>,
     .shard = ShardRecurrentGradient<kLstm>},
    {.name = kGru.gradient,
     .domain = kGradloomDomain,
     .traits = kProduct,
     .infer = GradientTypes<kGru>,
     .cost = RecurrentCost<kGru, 3>,
     .shard = ShardRecurrentGradient<kGru>},
    {.name = kRnn.gradient,
     .domain = kGradloomDomain,
     .traits = kProduct,
     .infer = GradientTypes<kRnn>,
     .cost = RecurrentCost<kRnn, 3>,
     .shard = ShardRecurrentGradient<kRnn>},
};

}  // namespace

std::span<const Op> RecurrentOps() { return kOps; }

}  // namespace gradloom

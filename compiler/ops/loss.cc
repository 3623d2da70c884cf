// Losses over classes. A mean is never a single operator: sums and denominators are separate values, so that a batch that is divided over
// devices can add both.
#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/loss_rows.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/error.h"
#include "runtime/base/ignored_class.h"

namespace gradloom {
namespace {

void ExpectRows(const Graph& graph, const Node& node, int rows) {
  ExpectFloating(graph, node, rows);
  ExpectRank(graph, node, rows, 2);
  if (InputType(graph, node, rows).shape[1] < 1) throw Error(ErrorCode::kShape, "there must be at least 1 class", Describe(node));
}

// Labels, int64[M], in operand `at`, and class weights, [C] of type `weights` or absent, in the next one: those of scores [M,C].
void ExpectLabels(const Graph& graph, const Node& node, int at, const Shape& scores, DType weights) {
  ExpectInput(graph, node, at, {DType::kInt64, Shape{scores[0]}});
  if (HasInput(node, at + 1)) ExpectInput(graph, node, at + 1, {weights, Shape{scores[1]}});
}

// Operands: scores [M,C], target int64[M], class weight [C]?.
std::vector<ValueType> SumsOverRows(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 3, 3);
  ExpectRows(graph, node, 0);
  const ValueType scores = InputType(graph, node, 0);
  ExpectLabels(graph, node, 1, scores.shape, scores.dtype);
  return OutputTypes(node, {{scores.dtype, Shape{}}, {scores.dtype, Shape{}}, scores});
}

// The upstream gradient of a loss is one factor for all rows, or one per row.
void ExpectUpstream(const Graph& graph, const Node& node, int i, DType dtype, int64_t rows) {
  const ValueType got = InputType(graph, node, i);
  if (got != ValueType{dtype, Shape{}}) ExpectInput(graph, node, i, {dtype, Shape{rows}});
}

// Operands: log_prob [M,C], target, class weight?, upstream.
std::vector<ValueType> CrossEntropyGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 4, 4, 1);
  ExpectRows(graph, node, 0);
  const ValueType scores = InputType(graph, node, 0);
  ExpectLabels(graph, node, 1, scores.shape, scores.dtype);
  ExpectUpstream(graph, node, 3, scores.dtype, scores.shape[0]);
  return {scores};
}

// The type of everything but 16-bit scores.
DType SumType(DType scores) { return DTypeBytes(scores) == 2 ? DType::kFloat32 : scores; }

// The same operands as CrossEntropy, but for each row the log of the sum of exponentials, [M], in place of all log-probabilities. Scores
// may have 16 bits; everything else is float32 then.
std::vector<ValueType> LogSumTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 2, 3, 3);
  ExpectRows(graph, node, 0);
  const ValueType scores = InputType(graph, node, 0);
  const DType sums = SumType(scores.dtype);
  ExpectLabels(graph, node, 1, scores.shape, sums);
  return OutputTypes(node, {{sums, Shape{}}, {sums, Shape{}}, {sums, Shape{scores.shape[0]}}});
}

// Operands: scores [M,C], log sum [M], target, class weight?, upstream.
std::vector<ValueType> LogSumGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 5, 5, 1);
  ExpectRows(graph, node, 0);
  const ValueType scores = InputType(graph, node, 0);
  const DType sums = SumType(scores.dtype);
  ExpectInput(graph, node, 1, {sums, Shape{scores.shape[0]}});
  ExpectLabels(graph, node, 2, scores.shape, sums);
  ExpectUpstream(graph, node, 4, sums, scores.shape[0]);
  return {scores};
}

// CrossEntropyLogSum and its gradient at once, for an upstream gradient that does not depend on the loss. Operands: scores, target, class
// weight?, upstream; results: the sum of the losses, and the gradient of the scores.
std::vector<ValueType> CrossEntropyTrainingTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 4, 4, 2);
  ExpectRows(graph, node, 0);
  const ValueType scores = InputType(graph, node, 0);
  const DType sums = SumType(scores.dtype);
  ExpectLabels(graph, node, 1, scores.shape, sums);
  ExpectUpstream(graph, node, 3, sums, scores.shape[0]);
  return OutputTypes(node, {{sums, Shape{}}, scores});
}

// The sum over counted rows of 1, or of the weights of their classes: the second result of CrossEntropy and Nll, from the labels alone.
// Operands: target int64[M], class weight [C]?; attributes: ignore_index, and the type of the result, to. Invalid labels, which the losses
// refuse, count 1, or with weights 0.
std::vector<ValueType> LabelWeightsTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 2, 1);
  ExpectRank(graph, node, 0, 1);
  ExpectInput(graph, node, 0, {DType::kInt64, InputType(graph, node, 0).shape});
  const auto to = static_cast<DType>(node.attributes.Int("to", static_cast<int64_t>(DType::kFloat32)));
  if (!IsFloating(to)) throw Error(ErrorCode::kAttr, "attribute 'to' must be a floating-point type", Describe(node));
  if (HasInput(node, 1)) {
    ExpectRank(graph, node, 1, 1);
    ExpectInput(graph, node, 1, {to, InputType(graph, node, 1).shape});
  }
  return {{to, Shape{}}};
}

// Operands: target int64[M], class weight?, upstream; attribute: classes.
std::vector<ValueType> NllGradTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 1);
  ExpectRank(graph, node, 0, 1);
  const int64_t rows = InputType(graph, node, 0).shape[0], classes = node.attributes.Int("classes", 0);
  if (classes < 1) throw Error(ErrorCode::kAttr, "attribute 'classes' must be at least 1", Describe(node));
  ExpectFloating(graph, node, 2);
  const ValueType scores{InputType(graph, node, 2).dtype, Shape{rows, classes}};
  ExpectLabels(graph, node, 0, scores.shape, scores.dtype);
  ExpectUpstream(graph, node, 2, scores.dtype, rows);
  return {scores};
}

// g - softmax * sum of g over the classes: the gradient that flows through log_prob itself.
ValueId ThroughLogProb(GraphBuilder& b, ValueId log_prob, ValueId gradient) {
  return b.Sub(gradient, b.Mul(b.Op("Exp", {log_prob}), b.ReduceSum(gradient, {-1}, true)));
}

void CrossEntropyGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  ValueId gradient = kNoValue;
  if (c.grad(0) != kNoValue) gradient = c.b.Own("CrossEntropyGrad", {c.out(2), c.in(1), c.in(2), c.grad(0)}, c.attributes());
  if (c.grad(2) != kNoValue) {
    const ValueId through = ThroughLogProb(c.b, c.out(2), c.grad(2));
    gradient = gradient == kNoValue ? through : c.b.Add(gradient, through);
  }
  if (gradient != kNoValue) c.set(0, gradient);
}

ValueId NllGradOf(GraphBuilder& b, const LossRows& rows, ValueId upstream) {
  return b.Own("NllGrad", {rows.target, rows.class_weight, upstream},
               {{"ignore_index", rows.ignore_index}, {"classes", b.shape(rows.scores)[1]}});
}

void NllGradient(GradientContext& c) {
  if (!c.needs(0) || c.grad(0) == kNoValue) return;
  const LossRows rows{.scores = c.in(0), .target = c.in(1), .class_weight = c.in(2), .ignore_index = IgnoredClassOf(c.attributes())};
  c.set(0, NllGradOf(c.b, rows, c.grad(0)));
}

// The gradient of ONNX's two losses with respect to each row's -w[t] log p[t].
ValueId UpstreamOfRows(GradientContext& c, const LossRows& rows) {
  const std::string reduction = c.attributes().String("reduction", "mean");
  const ValueId upstream = InAtLeast32Bits(c.b, c.grad(0));
  if (reduction == "sum") return upstream;
  if (reduction == "none") return c.b.Reshape(upstream, c.b.shape(rows.target));
  const std::vector<ValueId> sums =
      c.b.Ops("Nll", kGradloomDomain, {rows.scores, rows.target, rows.class_weight}, 2, {{"ignore_index", rows.ignore_index}});
  return c.b.Div(upstream, sums[1]);
}

void NegativeLogLikelihoodGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  const LossRows rows = RowsOfOnnxLoss(c.b, c.node());
  c.set(0, rows.Restore(c.b, NllGradOf(c.b, rows, UpstreamOfRows(c, rows)), c.b.graph().type(c.in(0))));
}

void SoftmaxCrossEntropyGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  LossRows rows = RowsOfOnnxLoss(c.b, c.node());
  rows.scores = c.b.Op("LogSoftmax", {rows.scores}, {{"axis", int64_t{-1}}});
  ValueId gradient = kNoValue;
  if (c.grad(0) != kNoValue) {
    gradient = c.b.Own("CrossEntropyGrad", {rows.scores, rows.target, rows.class_weight, UpstreamOfRows(c, rows)},
                       {{"ignore_index", rows.ignore_index}});
  }
  if (c.grad(1) != kNoValue) {
    const ValueId through = ThroughLogProb(c.b, rows.scores, FlattenClasses(c.b, InAtLeast32Bits(c.b, c.grad(1)), 1));
    gradient = gradient == kNoValue ? through : c.b.Add(gradient, through);
  }
  if (gradient != kNoValue) c.set(0, rows.Restore(c.b, gradient, c.b.graph().type(c.in(0))));
}

// A mean includes its denominator: compiler/passes/devices/expose_sums separates them if a batch is divided.
void ShardOnnxLoss(ShardQuery& query) {
  const std::string reduction = query.attributes().String("reduction", "mean");
  if (reduction == "mean" && query.in(0).split()) query.Refuse("it computes a mean over all samples");
  ShardSamples(query, reduction == "sum" ? "00.>+0" : "00.>00");
}

constexpr Op kOps[] = {
    {.name = "CrossEntropy", .domain = kGradloomDomain, .gradient = CrossEntropyGradient, .infer = SumsOverRows, .samples = "00.>++0"},
    {.name = "CrossEntropyGrad", .domain = kGradloomDomain, .infer = CrossEntropyGradTypes, .samples = "00.?>0"},
    {.name = "CrossEntropyLogSum", .domain = kGradloomDomain, .infer = LogSumTypes, .samples = "00.>++0"},
    {.name = "CrossEntropyLogSumGrad", .domain = kGradloomDomain, .infer = LogSumGradTypes, .samples = "000.?>0"},
    {.name = "CrossEntropyTraining", .domain = kGradloomDomain, .infer = CrossEntropyTrainingTypes, .samples = "00.?>+0"},
    {.name = "LabelWeights", .domain = kGradloomDomain, .traits = kNoGradient, .infer = LabelWeightsTypes, .samples = "0.>+"},
    {.name = "Nll", .domain = kGradloomDomain, .gradient = NllGradient, .infer = SumsOverRows, .samples = "00.>++0"},
    {.name = "NllGrad", .domain = kGradloomDomain, .infer = NllGradTypes, .samples = "0.?>0"},
    {.name = "SoftmaxCrossEntropyLoss", .domain = "", .since_version = 12, .gradient = SoftmaxCrossEntropyGradient, .shard = ShardOnnxLoss},
    {.name = "NegativeLogLikelihoodLoss",
     .domain = "",
     .since_version = 12,
     .gradient = NegativeLogLikelihoodGradient,
     .shard = ShardOnnxLoss},
};

}  // namespace

std::span<const Op> LossOps() { return kOps; }

ValueId FlattenClasses(GraphBuilder& b, ValueId scores, int axis) {
  const Shape shape = b.shape(scores);
  std::vector<int64_t> perm;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) perm.push_back(i);
  }
  perm.push_back(axis);
  const int64_t classes = shape[axis];
  int64_t rows = 1;
  for (int i = 0; i < shape.rank(); ++i) rows *= i == axis ? 1 : shape[i];
  return b.Reshape(b.Transpose(scores, perm), Shape{rows, classes});
}

ValueId LossRows::Restore(GraphBuilder& b, ValueId gradient, const ValueType& type) const {
  const Shape& shape = type.shape;
  std::vector<int64_t> moved, perm;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) moved.push_back(shape[i]);
    perm.push_back(i < axis ? i : i == axis ? shape.rank() - 1 : i - 1);
  }
  moved.push_back(shape[axis]);
  const ValueId restored = b.Transpose(b.Reshape(gradient, Shape(moved)), perm);
  return b.dtype(restored) == type.dtype ? restored : b.Cast(restored, type.dtype);
}

LossRows RowsOfOnnxLoss(GraphBuilder& b, const Node& node) {
  LossRows rows{.scores = FlattenClasses(b, InAtLeast32Bits(b, node.inputs[0]), 1)};
  rows.target = b.Cast(b.Reshape(node.inputs[1], Shape{b.shape(rows.scores)[0]}), DType::kInt64);
  if (HasInput(node, 2)) rows.class_weight = InAtLeast32Bits(b, node.inputs[2]);
  // Without ignore_index ONNX ignores no label, so a label that cannot occur is used.
  rows.ignore_index = node.attributes.Int("ignore_index", INT64_MIN);
  return rows;
}

}  // namespace gradloom

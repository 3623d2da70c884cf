// Branches and loops that are decided at run time.
//
//   gradloom.If(condition, x...) {then_branch, else_branch} -> (y...): the results for x of the branch that the condition (a scalar bool)
//     selects. Both branches take all of x and return equal types.
//   gradloom.Loop(trips, x...) {body, carried, conditional, trip_bound, kept_bound} -> (y...): the first `carried` of x are loop-carried:
//     the body takes all of x, with the current loop-carried values first, and returns their next values. It runs `trips` times (a scalar
//     int64; absent: no limit) and, if `conditional` is 1, as long as the first of x, a scalar bool, is true before an iteration. More than
//     `trip_bound` iterations are an error at run time. If that is too large to keep a row for each iteration, training uses `kept_bound`.
//   gradloom.Copy(x) -> y: the same elements in another place
//   gradloom.SetRow(x, i, row) -> x with row i replaced; i: a scalar int64, and a negative one counts from the end
//
// The inputs of a body are those of the node except the condition or the trip count, in order; a body captures nothing else. Gradients are
// in passes/gradient/differentiate_regions.cc, because they consist of the gradients of bodies.
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "compiler/ops/trip_estimate.h"

namespace gradloom {
namespace {

const Graph& BodyOf(const Node& node, size_t region) {
  if (region >= node.regions.size() || node.regions[region].body == nullptr)
    throw Error(ErrorCode::kArity, "the node lacks a body", Describe(node));
  return *node.regions[region].body;
}

// The inputs of a body are those of the node after the first one.
void ExpectOperands(const Graph& graph, const Node& node, const Graph& body) {
  if (body.inputs.size() + 1 != node.inputs.size()) {
    throw Error(ErrorCode::kArity,
                "a body has " + std::to_string(body.inputs.size()) + " inputs, expected " +
                    std::to_string(static_cast<int>(node.inputs.size()) - 1),
                Describe(node));
  }
  for (size_t i = 0; i < body.inputs.size(); ++i) ExpectInput(graph, node, static_cast<int>(i) + 1, body.type(body.inputs[i]));
}

void ExpectResults(const Node& node, const Graph& body, const std::vector<ValueType>& types) {
  bool fits = body.outputs.size() == types.size();
  for (size_t i = 0; fits && i < types.size(); ++i) fits = body.type(body.outputs[i]) == types[i];
  if (!fits) throw Error(ErrorCode::kType, "the output types of its bodies do not match its own", Describe(node));
}

std::vector<ValueType> InferIf(const Graph& graph, const Node& node) {
  const ValueType condition = InputType(graph, node, 0);
  if (condition.dtype != DType::kBool || condition.shape.elements() != 1)
    throw Error(ErrorCode::kType, "the condition must be a scalar bool", Describe(node));
  std::vector<ValueType> types;
  for (ValueId id : BodyOf(node, 0).outputs) types.push_back(BodyOf(node, 0).type(id));
  for (size_t region : {0, 1}) {
    ExpectOperands(graph, node, BodyOf(node, region));
    ExpectResults(node, BodyOf(node, region), types);
  }
  return OutputTypes(node, std::move(types));
}

std::vector<ValueType> InferLoop(const Graph& graph, const Node& node) {
  if (HasInput(node, 0)) {
    const ValueType trips = InputType(graph, node, 0);
    if (trips.dtype != DType::kInt64 || trips.shape.elements() != 1)
      throw Error(ErrorCode::kType, "the trip count must be a scalar int64", Describe(node));
  }
  const Graph& body = BodyOf(node, 0);
  ExpectOperands(graph, node, body);
  const int64_t carried = node.attributes.Int("carried", 0);
  if (carried < 0 || carried >= static_cast<int64_t>(node.inputs.size()))
    throw Error(ErrorCode::kArity, "carries " + std::to_string(carried) + " values", Describe(node));
  std::vector<ValueType> types;
  for (int i = 0; i < static_cast<int>(carried); ++i) types.push_back(InputType(graph, node, i + 1));
  ExpectResults(node, body, types);
  if (node.attributes.Int("conditional", 0) != 0 && (types.empty() || types[0].dtype != DType::kBool || types[0].shape.elements() != 1))
    throw Error(ErrorCode::kType, "the condition of the loop must be a scalar bool", Describe(node));
  return OutputTypes(node, std::move(types));
}

// Returns the shape of a row of input 0.
Shape RowShape(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0), index = InputType(graph, node, 1);
  if (x.shape.rank() < 1) throw Error(ErrorCode::kShape, "the rows must have rank 1 or more", Describe(node));
  if (index.dtype != DType::kInt64 || index.shape.elements() != 1)
    throw Error(ErrorCode::kType, "the row index must be a scalar int64", Describe(node));
  return Shape(std::vector<int64_t>(x.shape.begin() + 1, x.shape.end()));
}

std::vector<ValueType> InferSetRow(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 3, 1);
  const ValueType x = InputType(graph, node, 0);
  ExpectInput(graph, node, 2, {x.dtype, RowShape(graph, node)});
  return OutputTypes(node, {x});
}

void CopyGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.grad(0));
}

void SetRowGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("SetRow", {c.grad(0), c.in(1), c.b.Zeros(c.b.graph().type(c.in(2)))}));
  if (c.needs(2)) c.set(2, c.b.Op("Gather", {c.grad(0), c.b.Reshape(c.in(1), {})}, {{"axis", int64_t{0}}}));
}

// In the rows, the batch axis of a row is shifted by one.
void ShardSetRow(ShardQuery& query) {
  query.ExpectWhole(1);
  if (query.given(0).partial() && query.given(2).partial()) return query.set(0, Shard::Partial());
  const Shard rows = query.in(0);
  Shard row = query.in(2);
  if (rows.split() && rows.axis == 0) query.Refuse("it writes rows along the batch axis");
  if (row.split()) ++row.axis;
  query.set(0, Joined(query, rows, row));
}

Cost CostOfBody(const Graph& body) {
  Cost sum;
  for (const Node& node : body.nodes) {
    const Cost cost = CostOf(body, node);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

Cost CostOfIf(const Graph&, const Node& node) {
  const Cost a = CostOfBody(BodyOf(node, 0)), b = CostOfBody(BodyOf(node, 1));
  return {std::max(a.flops, b.flops), std::max(a.bytes, b.bytes)};
}

Cost CostOfLoop(const Graph&, const Node& node) {
  const double trips = EstimatedTrips(node.attributes.Int("trip_bound", 1));
  const Cost once = CostOfBody(BodyOf(node, 0));
  return {trips * once.flops, trips * once.bytes};
}

// Only the row is copied: the other rows stay in place.
Cost CostOfRow(const Graph& graph, const Node& node) {
  const ValueType x = InputType(graph, node, 0);
  const double rows = x.shape[0] > 0 ? static_cast<double>(x.shape[0]) : 1;
  return {0, 2 * static_cast<double>(x.bytes()) / rows};
}

const Op kOps[] = {
    {.name = "If", .domain = kGradloomDomain, .infer = InferIf, .cost = CostOfIf},
    {.name = "Loop", .domain = kGradloomDomain, .infer = InferLoop, .cost = CostOfLoop},
    {.name = "Copy", .domain = kGradloomDomain, .gradient = CopyGradient, .infer = InferCopy},
    {.name = "SetRow",
     .domain = kGradloomDomain,
     .gradient = SetRowGradient,
     .infer = InferSetRow,
     .cost = CostOfRow,
     .shard = ShardSetRow},
};

}  // namespace

std::span<const Op> ControlFlowOps() { return kOps; }

}  // namespace gradloom

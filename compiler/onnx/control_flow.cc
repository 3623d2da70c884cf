// If, Loop and Scan whose way is known: the branch that is taken, and the rounds of a loop, written out.
#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/onnx/importer.h"

namespace gradloom {
namespace {

// Nodes that written-out rounds of loops may add up to.
constexpr int64_t kMaxUnrolledNodes = 100'000;

const onnx::GraphProto& GraphOf(const onnx::AttributeProto* attribute, const char* name, const std::string& where) {
  if (attribute == nullptr || !attribute->has_g()) throw Error(ErrorCode::kAttr, std::string("the graph '") + name + "' is missing", where);
  return attribute->g();
}

// Whether the body of a Loop hands its condition on as it is, so that the trip count alone ends it.
bool KeepsCondition(const onnx::GraphProto& body) {
  std::string name = body.output(0).name();
  for (int i = body.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto& node = body.node(i);
    if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 && node.output(0) == name) name = node.input(0);
  }
  return name == body.input(1).name();
}

std::string WhereOf(const onnx::NodeProto& proto, const Scope& scope) {
  return Escaped(proto.op_type()) + " '" +
         Escaped(scope.path + (proto.name().empty() && proto.output_size() > 0 ? proto.output(0) : proto.name())) + "'";
}

}  // namespace

std::vector<Binding> Importer::RunGraph(const onnx::GraphProto& graph, Scope& scope) {
  AddInitializers(graph, scope);
  RunNodes(graph.node(), scope);
  std::vector<Binding> results;
  for (const auto& output : graph.output()) {
    const Binding* made = scope.Find(output.name());
    if (made == nullptr)
      throw Error(ErrorCode::kGraph, "a nested graph does not make its output '" + Escaped(output.name()) + "'", Escaped(scope.path));
    results.push_back(*made);
  }
  return results;
}

Scope Importer::Nested(const Scope& outer, const std::string& path) const {
  Scope scope;
  scope.outer = &outer;
  scope.path = path;
  scope.opsets = outer.opsets;
  scope.attributes = outer.attributes;
  return scope;
}

void Importer::RunIf(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  if (proto.input_size() != 1) throw Error(ErrorCode::kArity, "operator 'If' takes 1 input", where);
  const onnx::GraphProto& then_branch = GraphOf(FindAttribute(proto, "then_branch", scope), "then_branch", where);
  const onnx::GraphProto& else_branch = GraphOf(FindAttribute(proto, "else_branch", scope), "else_branch", where);
  const Tensor* condition = emitter_.Constant(emitter_.Computed(TensorOf(proto.input(0), proto, scope)));
  if (condition == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the condition of an If is not known before the run", where,
                "export the model with fixed shapes, or without control flow");
  }
  if (condition->dtype() != DType::kBool || condition->elements() != 1)
    throw Error(ErrorCode::kType, "the condition of an If is no single bool", where);
  const bool taken = condition->as<bool>()[0];
  const onnx::GraphProto& branch = taken ? then_branch : else_branch;
  if (branch.output_size() != proto.output_size()) {
    throw Error(ErrorCode::kArity,
                "an If of " + std::to_string(proto.output_size()) + " outputs has a branch of " + std::to_string(branch.output_size()),
                where);
  }
  Scope body = Nested(scope, Origin(proto, scope) + "/" + (taken ? "then" : "else") + "/");
  for (int i = 0; i < proto.output_size(); ++i) {
    if (!proto.output(i).empty()) body.renamed.emplace(branch.output(i).name(), NameOf(proto.output(i), scope));
  }
  BindOutputs(proto, RunGraph(branch, body), scope);
}

void Importer::CountUnrolled(int64_t nodes, const std::string& where) {
  // Not the sum, which may overflow.
  if (nodes <= kMaxUnrolledNodes - unrolled_nodes_) {
    unrolled_nodes_ += nodes;
    return;
  }
  throw Error(ErrorCode::kLimit, "the rounds of loops come to more than " + std::to_string(kMaxUnrolledNodes) + " nodes", where);
}

void Importer::BindOutputs(const onnx::NodeProto& proto, const std::vector<Binding>& values, Scope& scope) const {
  for (int i = 0; i < proto.output_size() && static_cast<size_t>(i) < values.size(); ++i) {
    if (!proto.output(i).empty()) scope.names.insert_or_assign(proto.output(i), values[static_cast<size_t>(i)]);
  }
}

ValueId Importer::Stack(const std::vector<ValueId>& rows, int64_t axis, const std::string& origin, const std::string& name) {
  std::vector<ValueId> parts;
  for (ValueId row : rows) parts.push_back(EmitOp("Unsqueeze", {row, Ints(origin, {axis})}, {}, origin, ""));
  return EmitOp("Concat", parts, {{"axis", axis}}, origin, name);
}

ValueId Importer::EmitOp(const std::string& op, std::vector<ValueId> inputs, Attributes attributes, const std::string& origin,
                         const std::string& name) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.origin = origin;
  return emitter_.Emit(std::move(node), {name.empty() ? origin + "/" + op : name})[0];
}

ValueId Importer::Ints(const std::string& origin, const std::vector<int64_t>& values) {
  return emitter_.AddConstant(origin + "/ints", Tensor::From<int64_t>(values, Shape{static_cast<int64_t>(values.size())}));
}

// A loop is written out where the number of its rounds comes out of constants: the trip count, or a condition that
// every round computes from constants.
void Importer::RunLoop(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  const onnx::GraphProto& graph = GraphOf(FindAttribute(proto, "body", scope), "body", where);
  const int carried = proto.input_size() - 2;
  if (carried < 0 || graph.input_size() != carried + 2 || graph.output_size() < carried + 1 ||
      proto.output_size() > graph.output_size() - 1) {
    throw Error(ErrorCode::kArity, "the inputs and outputs of a Loop are not those of its body", where);
  }
  const int scans = graph.output_size() - 1 - carried;
  const auto constant = [&](const std::string& name) { return emitter_.Constant(emitter_.Computed(TensorOf(name, proto, scope))); };
  int64_t trips = std::numeric_limits<int64_t>::max();
  if (!proto.input(0).empty()) {
    const Tensor* count = constant(proto.input(0));
    if (count == nullptr) throw Error(ErrorCode::kUnsupported, "the number of rounds of a Loop is not known before the run", where);
    if (count->dtype() != DType::kInt64 || count->elements() != 1)
      throw Error(ErrorCode::kType, "the trip count of a Loop is no single int64", where);
    trips = std::max<int64_t>(0, count->as<int64_t>()[0]);
  }
  bool going = true;
  if (!proto.input(1).empty()) {
    const Tensor* condition = constant(proto.input(1));
    if (condition == nullptr) throw Error(ErrorCode::kUnsupported, "the condition of a Loop is not known before the run", where);
    if (condition->dtype() != DType::kBool || condition->elements() != 1)
      throw Error(ErrorCode::kType, "the condition of a Loop is no single bool", where);
    going = condition->as<bool>()[0];
  }
  if (proto.input(0).empty() && proto.input(1).empty()) throw Error(ErrorCode::kUnsupported, "a Loop without an end", where);
  const std::string origin = Origin(proto, scope);
  std::vector<Binding> state;
  for (int i = 0; i < carried; ++i) state.push_back(Lookup(proto.input(i + 2), proto, scope));
  std::vector<std::vector<ValueId>> rows(static_cast<size_t>(scans));
  // Told at once where it is certain.
  if (going && trips > kMaxUnrolledNodes && KeepsCondition(graph)) CountUnrolled(trips, where);
  for (int64_t trip = 0; going && trip < trips; ++trip) {
    CountUnrolled(graph.node_size() + 1, where);
    Scope body = Nested(scope, origin + "/" + std::to_string(trip) + "/");
    body.names[graph.input(0).name()] = {emitter_.AddConstant(body.path + "trip", Tensor::Scalar<int64_t>(trip)), nullptr};
    body.names[graph.input(1).name()] = {emitter_.AddConstant(body.path + "condition", Tensor::Scalar<bool>(true)), nullptr};
    for (int i = 0; i < carried; ++i) body.names[graph.input(i + 2).name()] = state[static_cast<size_t>(i)];
    const std::vector<Binding> results = RunGraph(graph, body);
    const Tensor* condition = emitter_.Constant(emitter_.Computed(results[0].tensor));
    if (condition == nullptr) throw Error(ErrorCode::kUnsupported, "whether a Loop goes on is not known before the run", where);
    going = condition->elements() == 1 && condition->dtype() == DType::kBool && condition->as<bool>()[0];
    for (int i = 0; i < carried; ++i) state[static_cast<size_t>(i)] = results[static_cast<size_t>(i) + 1];
    for (int i = 0; i < scans; ++i) {
      const Binding& row = results[static_cast<size_t>(i + 1 + carried)];
      if (row.tensor == kNoValue) throw Error(ErrorCode::kType, "a Loop gathers something that is no tensor", where);
      rows[static_cast<size_t>(i)].push_back(row.tensor);
    }
  }
  for (int i = 0; i < scans && carried + i < proto.output_size(); ++i) {
    const std::string& output = proto.output(carried + i);
    if (output.empty()) {
      state.emplace_back();
      continue;
    }
    if (rows[static_cast<size_t>(i)].empty()) throw Error(ErrorCode::kUnsupported, "a Loop without a round gathers outputs", where);
    state.push_back({Stack(rows[static_cast<size_t>(i)], 0, origin, NameOf(output, scope)), nullptr});
  }
  BindOutputs(proto, state, scope);
}

void Importer::RunScan(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  const onnx::GraphProto& graph = GraphOf(FindAttribute(proto, "body", scope), "body", where);
  if (const auto version = scope.opsets->find(""); version != scope.opsets->end() && version->second < 9)
    throw Error(ErrorCode::kUnsupported, "a Scan of opset 8, which scans batches of sequences", where,
                "export the model for opset 9 or newer");
  const std::string origin = Origin(proto, scope);
  const auto ints = [&](const char* name) {
    const auto* attribute = FindAttribute(proto, name, scope);
    return attribute == nullptr ? std::vector<int64_t>{} : std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
  };
  const auto* count = FindAttribute(proto, "num_scan_inputs", scope);
  const int64_t scanned = count == nullptr ? 0 : count->i();
  const int64_t carried = proto.input_size() - scanned;
  if (scanned <= 0 || carried < 0)
    throw Error(ErrorCode::kAttr, "num_scan_inputs " + std::to_string(scanned) + " of " + std::to_string(proto.input_size()) + " inputs",
                where);
  const int64_t gathered = graph.output_size() - carried;
  if (graph.input_size() != proto.input_size() || gathered < 0 || proto.output_size() > graph.output_size()) {
    throw Error(ErrorCode::kArity, "the inputs and outputs of a Scan are not those of its body", where);
  }
  const std::vector<int64_t> in_axes = ints("scan_input_axes"), out_axes = ints("scan_output_axes");
  const std::vector<int64_t> in_directions = ints("scan_input_directions"), out_directions = ints("scan_output_directions");
  const auto at = [](const std::vector<int64_t>& list, int64_t i) {
    return static_cast<size_t>(i) < list.size() ? list[static_cast<size_t>(i)] : 0;
  };
  std::vector<Binding> state;
  for (int64_t i = 0; i < carried; ++i) state.push_back(Lookup(proto.input(static_cast<int>(i)), proto, scope));
  std::vector<ValueId> inputs;
  std::vector<int> axes;
  int64_t trips = -1;
  for (int64_t i = 0; i < scanned; ++i) {
    inputs.push_back(TensorOf(proto.input(static_cast<int>(carried + i)), proto, scope));
    const Shape& shape = emitter_.graph().value(inputs.back()).shape;
    const auto axis = NormalAxis(at(in_axes, i), shape.rank());
    if (!axis)
      throw Error(ErrorCode::kAttr, "scan_input_axes names axis " + std::to_string(at(in_axes, i)) + " of " + shape.ToString(), where);
    axes.push_back(*axis);
    if (trips >= 0 && shape[*axis] != trips) throw Error(ErrorCode::kShape, "the inputs of a Scan have different lengths", where);
    trips = shape[*axis];
  }
  std::vector<std::vector<ValueId>> rows(static_cast<size_t>(gathered));
  for (int64_t trip = 0; trip < trips; ++trip) {
    CountUnrolled(graph.node_size() + scanned, where);
    Scope body = Nested(scope, origin + "/" + std::to_string(trip) + "/");
    for (int64_t i = 0; i < carried; ++i) body.names[graph.input(static_cast<int>(i)).name()] = state[static_cast<size_t>(i)];
    for (int64_t i = 0; i < scanned; ++i) {
      const int64_t index = at(in_directions, i) == 1 ? trips - 1 - trip : trip;
      const ValueId position = emitter_.AddConstant(body.path + "index", Tensor::Scalar<int64_t>(index));
      const ValueId row =
          EmitOp("Gather", {inputs[static_cast<size_t>(i)], position}, {{"axis", int64_t{axes[static_cast<size_t>(i)]}}}, origin, "");
      body.names[graph.input(static_cast<int>(carried + i)).name()] = {row, nullptr};
    }
    const std::vector<Binding> results = RunGraph(graph, body);
    for (int64_t i = 0; i < carried; ++i) state[static_cast<size_t>(i)] = results[static_cast<size_t>(i)];
    for (int64_t i = 0; i < gathered; ++i) rows[static_cast<size_t>(i)].push_back(results[static_cast<size_t>(carried + i)].tensor);
  }
  for (int64_t i = 0; i < gathered && carried + i < proto.output_size(); ++i) {
    const std::string& output = proto.output(static_cast<int>(carried + i));
    std::vector<ValueId>& list = rows[static_cast<size_t>(i)];
    if (output.empty() || list.empty()) {
      state.emplace_back();
      continue;
    }
    if (at(out_directions, i) == 1) std::reverse(list.begin(), list.end());
    const int rank = emitter_.graph().value(list[0]).shape.rank() + 1;
    const auto axis = NormalAxis(at(out_axes, i), rank);
    if (!axis)
      throw Error(ErrorCode::kAttr, "scan_output_axes names axis " + std::to_string(at(out_axes, i)) + " of rank " + std::to_string(rank),
                  where);
    state.push_back({Stack(list, *axis, origin, NameOf(output, scope)), nullptr});
  }
  BindOutputs(proto, state, scope);
}

}  // namespace gradloom

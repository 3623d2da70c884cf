// If, Loop and Scan. If their control flow is known at compile time, they become the branch that is taken or the unrolled iterations;
// otherwise regions.cc makes bodies of their graphs.
#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/onnx/importer.h"

namespace gradloom {
namespace {

const onnx::GraphProto& GraphOf(const onnx::AttributeProto* attribute, const char* name, const std::string& where) {
  if (attribute == nullptr || !attribute->has_g()) throw Error(ErrorCode::kAttr, std::string("the graph '") + name + "' is missing", where);
  return attribute->g();
}

// Whether the body of a Loop passes its condition through unchanged, so that only the trip count ends it.
bool KeepsCondition(const onnx::GraphProto& body) {
  std::string name = body.output(0).name();
  for (int i = body.node_size() - 1; i >= 0; --i) {
    const onnx::NodeProto& node = body.node(i);
    if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 && node.output(0) == name) name = node.input(0);
  }
  return name == body.input(1).name();
}

}  // namespace

std::vector<Binding> Importer::RunGraph(const onnx::GraphProto& graph, Scope& scope) {
  AddInitializers(graph, scope);
  RunNodes(graph.node(), scope);
  CheckInner(graph, scope);
  std::vector<Binding> results;
  for (const auto& output : graph.output()) {
    const Binding* made = Find(output.name(), scope);
    if (made == nullptr)
      throw Error(ErrorCode::kGraph, "no node of the nested graph produces its output '" + Escaped(output.name()) + "'",
                  Escaped(scope.path));
    results.push_back(*made);
  }
  return results;
}

Scope Importer::Nested(const Scope& outer, const std::string& path) const {
  Scope scope;
  scope.outer = &outer;
  scope.depth = outer.depth;
  scope.path = path;
  scope.opsets = outer.opsets;
  scope.attributes = outer.attributes;
  return scope;
}

void Importer::RunIf(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  if (proto.input_size() != 1) throw Error(ErrorCode::kArity, "operator 'If' expects 1 input", where);
  const onnx::GraphProto& then_branch = GraphOf(FindAttribute(proto, "then_branch", scope), "then_branch", where);
  const onnx::GraphProto& else_branch = GraphOf(FindAttribute(proto, "else_branch", scope), "else_branch", where);
  const ValueId id = NeededTensorOf(proto.input(0), proto, scope);
  CheckSingle(id, DType::kBool, "the condition of If must be a scalar bool", where);
  for (const onnx::GraphProto* branch : {&then_branch, &else_branch}) {
    if (branch->output_size() == proto.output_size()) continue;
    throw Error(ErrorCode::kArity,
                "If has " + std::to_string(proto.output_size()) + " outputs, but a branch has " + std::to_string(branch->output_size()),
                where);
  }
  const Tensor* condition = emitter().Constant(emitter().Computed(id));
  if (condition == nullptr) return RunIfRegion(proto, id, then_branch, else_branch, scope);
  const bool taken = condition->as<bool>()[0];
  const onnx::GraphProto& branch = taken ? then_branch : else_branch;
  Scope body = Nested(scope, Origin(proto, scope) + "/" + (taken ? "then" : "else") + "/");
  for (int i = 0; i < proto.output_size(); ++i) {
    if (!proto.output(i).empty()) body.renamed.emplace(branch.output(i).name(), NameOf(proto.output(i), scope));
  }
  BindOutputs(proto, RunGraph(branch, body), scope);
}

void Importer::CheckSingle(ValueId id, DType dtype, const std::string& message, const std::string& where) {
  const Value* value = id == kNoValue ? nullptr : &emitter().graph().value(id);
  if (value == nullptr || value->dtype != dtype || value->shape.elements() != 1) throw Error(ErrorCode::kType, message, where);
}

bool Importer::MayUnroll(int64_t trips, int64_t nodes) const {
  const int64_t most = options_.unrolled_nodes;
  return trips <= (most - std::min(unrolled_nodes_, most)) / std::max<int64_t>(nodes, 1);
}

void Importer::CountUnrolled(int64_t nodes, const std::string& where) {
  if (!MayUnroll(1, nodes))
    throw Error(ErrorCode::kLimit, "unrolled loops have more than " + std::to_string(options_.unrolled_nodes) + " nodes", where);
  unrolled_nodes_ += nodes;
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
  return emitter().Emit(std::move(node), {name.empty() ? origin + "/" + op : name})[0];
}

ValueId Importer::Ints(const std::string& origin, const std::vector<int64_t>& values) {
  return emitter().AddConstant(origin + "/ints", Tensor::From<int64_t>(values, Shape{static_cast<int64_t>(values.size())}));
}

// Returns false if it is unknown whether there is another iteration, or if there are too many: nodes emitted so far are then unused.
bool Importer::UnrollLoop(const LoopParts& parts, const std::string& origin, const Scope& scope, std::vector<Binding>& results) {
  const int64_t trips = parts.trip_count == kNoValue ? std::numeric_limits<int64_t>::max() : parts.trips;
  if (trips < 0 || parts.condition != kNoValue || (!parts.has_condition_output && !MayUnroll(trips, parts.graph.node_size() + 1)))
    return false;
  // Avoids unrolling if it is certain to exceed the limit.
  if (!MayUnroll(trips, parts.graph.node_size() + 1) && parts.has_condition_output && KeepsCondition(parts.graph)) return false;
  const auto carried = static_cast<int64_t>(parts.states.size());
  const int64_t first = parts.has_condition_output ? 1 : 0;
  std::vector<std::vector<ValueId>> rows(static_cast<size_t>(parts.graph.output_size() - first - carried));
  results = parts.states;
  bool going = true;
  for (int64_t trip = 0; going && trip < trips; ++trip) {
    if (!MayUnroll(1, parts.graph.node_size() + 1)) return false;
    unrolled_nodes_ += parts.graph.node_size() + 1;
    Scope body = Nested(scope, origin + "/" + std::to_string(trip) + "/");
    parts.enter(body, emitter().AddConstant(body.path + "trip", Tensor::Scalar<int64_t>(trip)), results);
    std::vector<Binding> made = RunGraph(parts.graph, body);
    if (parts.has_condition_output) {
      CheckSingle(made[0].tensor, DType::kBool, "the condition of Loop must be a scalar bool", Escaped(origin));
      const Tensor* condition = emitter().Constant(emitter().Computed(made[0].tensor));
      if (condition == nullptr) return false;
      going = condition->as<bool>()[0];
      made.erase(made.begin());
    }
    results.assign(made.begin(), made.begin() + carried);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Binding& row = made[static_cast<size_t>(carried) + i];
      if (row.tensor == kNoValue) throw Error(ErrorCode::kType, "the scan outputs of a loop must be tensors", Escaped(origin));
      rows[i].push_back(row.tensor);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& name = parts.names[static_cast<size_t>(carried) + i];
    results.emplace_back();
    if (name.empty()) continue;
    if (rows[i].empty()) throw Error(ErrorCode::kUnsupported, "a loop with scan outputs must run at least one iteration", Escaped(origin));
    // Sort the rows by position.
    std::vector<ValueId> sorted(rows[i].size(), kNoValue);
    for (size_t k = 0; k < rows[i].size(); ++k) {
      const ValueId trip = emitter().AddConstant(origin + "/trip", Tensor::Scalar<int64_t>(static_cast<int64_t>(k)));
      sorted[static_cast<size_t>(emitter().Constant(emitter().Computed(parts.place(trip, i)))->as<int64_t>()[0])] = rows[i][k];
    }
    results.back().tensor = Stack(sorted, 0, origin, name);
  }
  return true;
}

std::vector<Binding> Importer::RunIterations(const onnx::NodeProto& proto, LoopParts& parts, const std::string& origin,
                                             const Scope& scope) {
  for (int i = 0; i < parts.graph.output_size() - (parts.has_condition_output ? 1 : 0); ++i) {
    parts.names.push_back(i < proto.output_size() && !proto.output(i).empty() ? NameOf(proto.output(i), scope) : "");
  }
  std::vector<Binding> results;
  if (parts.has_condition_output && RunBags(parts, origin, scope, results)) return results;
  if (UnrollLoop(parts, origin, scope, results)) return results;
  results.clear();
  for (ValueId id : RunLoopRegion(parts, origin, scope)) results.push_back({id, nullptr});
  return results;
}

void Importer::RunLoop(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  const onnx::GraphProto& graph = GraphOf(FindAttribute(proto, "body", scope), "body", where);
  const int carried = proto.input_size() - 2;
  if (carried < 0 || graph.input_size() != carried + 2 || graph.output_size() < carried + 1 ||
      proto.output_size() > graph.output_size() - 1) {
    throw Error(ErrorCode::kArity, "the inputs and outputs of Loop do not match its body", where);
  }
  const std::string origin = Origin(proto, scope);
  LoopParts parts{.graph = graph, .has_condition_output = true};
  if (const ValueId count = TensorOf(proto.input(0), proto, scope); count != kNoValue) {
    parts.trip_count = count;
    CheckSingle(parts.trip_count, DType::kInt64, "the trip count of Loop must be a scalar int64", where);
    if (const Tensor* known = emitter().Constant(emitter().Computed(parts.trip_count)))
      parts.trips = std::max<int64_t>(0, known->as<int64_t>()[0]);
    const auto numbers = emitter().extents().Numbers(parts.trip_count);
    if (parts.trips < 0 && numbers && numbers->at(0).factor >= 0) parts.counted = emitter().extents().NotNegative(numbers->at(0), origin);
  }
  const ValueId condition = TensorOf(proto.input(1), proto, scope);
  if (condition != kNoValue) {
    parts.condition = condition;
    CheckSingle(parts.condition, DType::kBool, "the condition of Loop must be a scalar bool", where);
    if (const Tensor* known = emitter().Constant(emitter().Computed(parts.condition))) {
      if (!known->as<bool>()[0]) {
        parts.trips = 0;
        parts.trip_count = emitter().AddConstant(origin + "/trips", Tensor::Scalar<int64_t>(0));
      }
      parts.condition = kNoValue;
    }
  }
  if (parts.trip_count == kNoValue && condition == kNoValue)
    throw Error(ErrorCode::kUnsupported, "Loop must have a trip count or a condition", where);
  for (int i = 0; i < carried; ++i) parts.states.push_back(Lookup(proto.input(i + 2), proto, scope));
  parts.enter = [&](Scope& body, ValueId trip, const std::vector<Binding>& states) {
    body.names[graph.input(0).name()] = {trip, nullptr};
    body.names[graph.input(1).name()] = {emitter().AddConstant(body.path + "condition", Tensor::Scalar<bool>(true)), nullptr};
    for (size_t i = 0; i < states.size(); ++i) body.names[graph.input(static_cast<int>(i) + 2).name()] = states[i];
  };
  parts.place = [](ValueId trip, size_t) { return trip; };
  BindOutputs(proto, RunIterations(proto, parts, origin, scope), scope);
}

struct ScanForm {
  const onnx::GraphProto& body;
  int carried = 0, scanned = 0;  // numbers of inputs: states first
  size_t gathered = 0;           // outputs after the states
  std::vector<int64_t> in_axes, out_axes, in_directions, out_directions;

  // Returns element `i`, or 0 if the list is shorter.
  static int64_t At(const std::vector<int64_t>& list, size_t i) { return i < list.size() ? list[i] : 0; }
  int64_t in_axis(size_t i) const { return At(in_axes, i); }
  int64_t out_axis(size_t i) const { return At(out_axes, i); }
  bool reads_backwards(size_t i) const { return At(in_directions, i) == 1; }
  bool gathers_backwards(size_t i) const { return At(out_directions, i) == 1; }
};

ScanForm Importer::FormOfScan(const onnx::NodeProto& proto, const Scope& scope) const {
  const std::string where = WhereOf(proto, scope);
  ScanForm form{.body = GraphOf(FindAttribute(proto, "body", scope), "body", where)};
  if (const auto version = scope.opsets->find(""); version != scope.opsets->end() && version->second < 9)
    throw Error(ErrorCode::kUnsupported, "Scan of opset 8, which scans batches of sequences, is not supported", where,
                "export the model for opset 9 or newer");
  const auto* count = FindAttribute(proto, "num_scan_inputs", scope);
  const int64_t scanned = count == nullptr ? 0 : count->i();
  if (scanned <= 0 || scanned > proto.input_size())
    throw Error(
        ErrorCode::kAttr,
        "attribute 'num_scan_inputs' of Scan must be from 1 to " + std::to_string(proto.input_size()) + ", got " + std::to_string(scanned),
        where);
  form.scanned = static_cast<int>(scanned);
  form.carried = proto.input_size() - form.scanned;
  if (form.body.input_size() != proto.input_size() || form.body.output_size() < form.carried ||
      proto.output_size() > form.body.output_size()) {
    throw Error(ErrorCode::kArity, "the inputs and outputs of Scan do not match its body", where);
  }
  form.gathered = static_cast<size_t>(form.body.output_size() - form.carried);
  const auto read = [&](const char* name, std::vector<int64_t>& to) {
    if (const auto* attribute = FindAttribute(proto, name, scope)) to.assign(attribute->ints().begin(), attribute->ints().end());
  };
  read("scan_input_axes", form.in_axes);
  read("scan_output_axes", form.out_axes);
  read("scan_input_directions", form.in_directions);
  read("scan_output_directions", form.out_directions);
  return form;
}

Importer::Scanned Importer::ScannedBy(const onnx::NodeProto& proto, const ScanForm& form, const Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  Scanned scanned;
  for (int i = 0; i < form.scanned; ++i) {
    const ValueId id = NeededTensorOf(proto.input(form.carried + i), proto, scope);
    const Shape& shape = emitter().graph().value(id).shape;
    const int64_t wanted = form.in_axis(static_cast<size_t>(i));
    const auto axis = NormalAxis(wanted, shape.rank());
    if (!axis)
      throw Error(ErrorCode::kAttr,
                  "scan_input_axes has axis " + std::to_string(wanted) + ", which is out of range for shape " + shape.ToString(), where);
    const Size extent = emitter().extents().ExtentOf(id, *axis);
    if (i > 0 && !(extent == scanned.length)) {
      throw Error(extent.known() && scanned.length.known() ? ErrorCode::kShape : ErrorCode::kUnsupported,
                  "the scan inputs of Scan must have equal lengths", where);
    }
    scanned.length = extent;
    scanned.inputs.emplace_back(id, *axis);
  }
  return scanned;
}

void Importer::RunScan(const onnx::NodeProto& proto, Scope& scope) {
  const ScanForm form = FormOfScan(proto, scope);
  const onnx::GraphProto& graph = form.body;
  LoopParts parts{.graph = graph};
  for (int i = 0; i < form.carried; ++i) parts.states.push_back(Lookup(proto.input(i), proto, scope));
  const Scanned scanned = ScannedBy(proto, form, scope);
  const std::string origin = Origin(proto, scope);
  parts.trip_count = emitter().extents().ScalarOf(scanned.length, origin);
  if (scanned.length.known()) {
    parts.trips = scanned.length.factor;
  } else {
    parts.counted = scanned.length;
  }
  // Returns the position that iteration `trip` accesses, which counts from the end if `backwards`.
  const auto directed = [&](ValueId trip, bool backwards) {
    if (!backwards) return trip;
    const ValueId one = emitter().AddConstant(origin + "/one", Tensor::Scalar<int64_t>(1));
    const ValueId last = EmitOp("Sub", {Inner(parts.trip_count, scope.depth), one}, {}, origin, "");
    return EmitOp("Sub", {last, trip}, {}, origin, "");
  };
  parts.enter = [&](Scope& body, ValueId trip, const std::vector<Binding>& states) {
    for (size_t i = 0; i < states.size(); ++i) body.names[graph.input(static_cast<int>(i)).name()] = states[i];
    for (size_t i = 0; i < scanned.inputs.size(); ++i) {
      const auto [input, axis] = scanned.inputs[i];
      const ValueId whole = Inner(input, scope.depth);
      const ValueId place = directed(trip, form.reads_backwards(i));
      const ValueId row = EmitOp("Gather", {whole, place}, {{"axis", int64_t{axis}}}, origin, "");
      body.names[graph.input(form.carried + static_cast<int>(i)).name()] = {row, nullptr};
    }
  };
  parts.place = [&](ValueId trip, size_t output) { return directed(trip, form.gathers_backwards(output)); };
  std::vector<Binding> results = RunIterations(proto, parts, origin, scope);
  MoveScanOutputs(form, WhereOf(proto, scope), origin, results);
  BindOutputs(proto, results, scope);
}

// Iterations put their rows along axis 0.
void Importer::MoveScanOutputs(const ScanForm& form, const std::string& where, const std::string& origin, std::vector<Binding>& results) {
  for (size_t i = 0; i < form.gathered && static_cast<size_t>(form.carried) + i < results.size(); ++i) {
    Binding& rows = results[static_cast<size_t>(form.carried) + i];
    if (rows.tensor == kNoValue || form.out_axis(i) == 0) continue;
    const int rank = emitter().graph().value(rows.tensor).shape.rank();
    const auto axis = NormalAxis(form.out_axis(i), rank);
    if (!axis)
      throw Error(
          ErrorCode::kAttr,
          "scan_output_axes has axis " + std::to_string(form.out_axis(i)) + ", which is out of range for rank " + std::to_string(rank),
          where);
    std::vector<int64_t> perm;
    for (int k = 1; k < rank; ++k) perm.push_back(k);
    perm.insert(perm.begin() + *axis, 0);
    rows.tensor = EmitOp("Transpose", {rows.tensor}, {{"perm", perm}}, origin, "");
  }
}

}  // namespace gradloom

// If and Loop that are decided at run time: their graphs become bodies of gradloom.If and gradloom.Loop (compiler/ops/control_flow.cc).
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "compiler/onnx/batch/batch_axis.h"
#include "compiler/onnx/extents/joined_branches.h"
#include "compiler/onnx/importer.h"

namespace gradloom {
namespace {

// The trip bound of a loop without a trip count.
constexpr int64_t kMaxTrips = int64_t{1} << 31;

// The deepest nesting of branches and loops. The verifier refuses plans with more.
constexpr size_t kMaxNesting = 16;

// Gives a body one input for each captured value, in their order.
void AlignInputs(RegionFrame& frame, const std::vector<ValueId>& all, const Graph& outer) {
  Graph& graph = *frame.graph;
  graph.inputs.clear();
  for (ValueId id : all) {
    const auto known = std::find(frame.captured.begin(), frame.captured.end(), id);
    const Value& value = outer.value(id);
    graph.inputs.push_back(known != frame.captured.end() ? frame.inner.at(id)
                                                         : graph.AddValue(value.name, value.dtype, value.shape, Role::kInput));
  }
}

std::vector<ValueType> TypesOf(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<ValueType> types;
  for (ValueId id : values) types.push_back(graph.type(id));
  return types;
}

}  // namespace

bool RegionFrame::Outside(const Size& size, Size& outside) const {
  outside = {size.factor, {}};
  for (ValueId scalar : size.scalars) {
    const auto found = std::find_if(inner.begin(), inner.end(), [&](const auto& known) { return known.second == scalar; });
    if (found == inner.end()) return false;
    outside.scalars.push_back(found->first);
  }
  std::sort(outside.scalars.begin(), outside.scalars.end());
  return true;
}

ValueId Importer::Inner(ValueId id, size_t depth) {
  for (size_t level = depth; level < frames_.size(); ++level) id = Capture(frames_[level], level, id);
  return id;
}

// Constants that cannot be trained are copied into the body, where shapes may depend on them. Extents that depend on data are inherited.
ValueId Importer::Capture(RegionFrame& frame, size_t depth, ValueId id) {
  const auto known = frame.inner.find(id);
  if (known != frame.inner.end()) return known->second;
  Emitter& outer = EmitterAt(depth);
  const Value& value = outer.graph().value(id);
  const Tensor* data = outer.Constant(id);
  if (data != nullptr && !outer.may_train(id)) return frame.inner[id] = frame.emitter->AddConstant(value.name, *data);
  const ValueId inner = frame.graph->AddValue(value.name, value.dtype, value.shape, Role::kInput);
  frame.graph->inputs.push_back(inner);
  frame.captured.push_back(id);
  frame.inner[id] = inner;
  frame.emitter->extents().Inherit(outer.extents(), id, inner, [&](ValueId scalar) { return Capture(frame, depth, scalar); });
  return inner;
}

void Importer::BeginRegion(const std::string& where) {
  if (frames_.size() == kMaxNesting) {
    throw Error(ErrorCode::kLimit, "branches and loops that the data decides are nested more than " + std::to_string(kMaxNesting) + " deep",
                where, "export the model with conditions and trip counts that are constant");
  }
  RegionFrame frame;
  frame.graph = std::make_unique<Graph>();
  frame.emitter = std::make_unique<Emitter>(*frame.graph, rules_, file_.options.limits);
  frames_.push_back(std::move(frame));
}

RegionFrame Importer::EndRegion(const std::vector<ValueId>& results) {
  RegionFrame frame = std::move(frames_.back());
  frames_.pop_back();
  frame.graph->outputs = results;
  return frame;
}

std::vector<ValueId> Importer::Tensors(const std::vector<Binding>& bindings, const std::string& where) const {
  std::vector<ValueId> tensors;
  for (const Binding& binding : bindings) {
    if (binding.tensor == kNoValue)
      throw Error(ErrorCode::kUnsupported,
                  "a branch or a loop that is decided at run time can only pass tensors, not sequences or empty optionals", where);
    tensors.push_back(binding.tensor);
  }
  return tensors;
}

std::vector<Binding> Importer::RunRegion(const onnx::GraphProto& graph, Scope& scope) {
  try {
    return RunGraph(graph, scope);
  } catch (const Error& error) {
    if (emitter_.batch_observer() == nullptr) throw;
    throw emitter_.batch_observer()->InBody(error);
  }
}

void Importer::RunIfRegion(const onnx::NodeProto& proto, ValueId condition, const onnx::GraphProto& then_branch,
                           const onnx::GraphProto& else_branch, Scope& scope) {
  Node node{.op = "If", .domain = std::string(kGradloomDomain), .inputs = {condition}};
  node.origin = Origin(proto, scope);
  const std::string where = Describe(node);
  std::vector<RegionFrame> made;
  for (const auto& [name, branch] : {std::pair("then", &then_branch), std::pair("else", &else_branch)}) {
    BeginRegion(where);
    Scope body = Nested(scope, node.origin + "/" + name + "/");
    body.depth = frames_.size();
    made.push_back(EndRegion(Tensors(RunRegion(*branch, body), where)));
  }
  if (BatchObserver* watch = emitter_.batch_observer())
    watch->Join(node, TypesOf(*made[0].graph, made[0].graph->outputs), TypesOf(*made[1].graph, made[1].graph->outputs));
  JoinedBranches joined(made[0], made[1], node.origin);
  joined.Run();
  const std::vector<ValueType> types = TypesOf(*made[0].graph, made[0].graph->outputs);
  const std::vector<ValueType> others = TypesOf(*made[1].graph, made[1].graph->outputs);
  for (size_t i = 0; i < types.size() && i < others.size(); ++i) {
    if (types[i] == others[i]) continue;
    throw Error(types[i].dtype == others[i].dtype ? ErrorCode::kUnsupported : ErrorCode::kType,
                "output " + std::to_string(i) + " is " + types[i].ToString() + " in one branch and " + others[i].ToString() +
                    " in the other, and the condition is not known at compile time",
                where, "make both branches produce tensors of the same type and rank");
  }
  std::vector<ValueId> captured = made[0].captured;
  for (ValueId id : made[1].captured) {
    if (!made[0].inner.contains(id)) captured.push_back(id);
  }
  node.inputs.insert(node.inputs.end(), captured.begin(), captured.end());
  const char* const names[] = {"then_branch", "else_branch"};
  for (size_t i = 0; i < made.size(); ++i) {
    AlignInputs(made[i], captured, emitter().graph());
    node.regions.push_back({names[i], std::move(made[i].graph)});
  }
  std::vector<std::string> outputs;
  for (const std::string& output : proto.output()) outputs.push_back(output.empty() ? "" : NameOf(output, scope));
  outputs.resize(types.size(), node.origin + "/count");
  std::vector<Binding> results;
  const std::vector<ValueId> ids = emitter().Append(std::move(node), outputs, types);
  joined.Declare(emitter(), ids);
  for (ValueId id : ids) results.push_back({id, nullptr});
  BindOutputs(proto, results, scope);
}

// Builds the body of a loop. Its loop-carried values are, in this order: the condition, the iteration number, the states, and the rows
// gathered so far.
class Importer::LoopRegion {
 public:
  LoopRegion(Importer& importer, const LoopParts& parts, const std::string& origin) : i_(importer), parts_(parts) {
    node_ = {.op = "Loop", .domain = std::string(kGradloomDomain)};
    node_.origin = origin;
    states_ = i_.Tensors(parts.states, Describe(node_));
    bound_ = parts.trips >= 0 ? parts.trips : parts.counted.known() ? -1 : i_.emitter().extents().Bound(parts.counted);
  }

  std::vector<ValueId> Run(const Scope& scope) {
    RegionFrame frame = MakeBody(scope);
    AddOperands();
    frame.graph->inputs = own_;
    for (ValueId id : frame.captured) frame.graph->inputs.push_back(frame.inner.at(id));
    const auto carried = static_cast<int64_t>(node_.inputs.size()) - 1;
    node_.inputs.insert(node_.inputs.end(), frame.captured.begin(), frame.captured.end());
    node_.attributes = {{"carried", carried},
                        {"conditional", int64_t{conditional_ ? 1 : 0}},
                        {"trip_bound", bound_ >= 0 ? std::min(bound_, kMaxTrips) : kMaxTrips},
                        {"kept_bound", i_.options_.loop_bound}};
    const std::vector<ValueType> types = TypesOf(*frame.graph, frame.graph->outputs);
    node_.regions.push_back({"body", std::move(frame.graph)});
    FindRowAxes(frame);
    // Loop-carried values are outputs even if they are not used.
    std::vector<std::string> names(static_cast<size_t>(carried), node_.origin + "/carried");
    const size_t hidden = conditional_ ? 2 : 1;
    for (size_t i = 0; i < parts_.names.size(); ++i) {
      if (!parts_.names[i].empty()) names[hidden + i] = parts_.names[i];
    }
    std::vector<ValueId> made = i_.emitter().Append(std::move(node_), names, types);
    made.erase(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(hidden));
    Declare(made);
    return made;
  }

 private:
  [[noreturn]] void Refuse(const std::string& message, const std::string& help) const {
    throw Error(ErrorCode::kUnsupported, message, Describe(node_), help);
  }

  ValueId AddInput(const std::string& name, const ValueType& type) {
    Graph& graph = i_.emitter().graph();
    own_.push_back(graph.AddValue(name, type.dtype, type.shape, Role::kInput));
    return own_.back();
  }

  RegionFrame MakeBody(const Scope& scope) {
    std::vector<ValueType> before = TypesOf(i_.emitter().graph(), states_);
    i_.BeginRegion(Describe(node_));
    Scope body = i_.Nested(scope, node_.origin + "/body/");
    body.depth = i_.frames_.size();
    const ValueId trip = AddInput("trip", {DType::kInt64, {}});
    std::vector<Binding> states;
    for (size_t i = 0; i < before.size(); ++i) {
      states.push_back({AddInput("state", before[i]), nullptr});
      // The number of valid elements of a state is the same in every iteration.
      i_.emitter().extents().InheritAxes(i_.EmitterAt(scope.depth).extents(), states_[i], states[i].tensor,
                                         [&](ValueId scalar) { return i_.Inner(scalar, scope.depth); });
    }
    parts_.enter(body, trip, states);
    std::vector<ValueId> made = i_.Tensors(i_.RunRegion(parts_.graph, body), Describe(node_));
    const ValueId going = parts_.has_condition_output ? made[0] : kNoValue;
    if (going != kNoValue) made.erase(made.begin());
    FindCondition(going);
    CheckStates(states, made);
    std::vector<ValueId> results{Next(trip)};
    results.insert(results.end(), made.begin(), made.begin() + static_cast<std::ptrdiff_t>(states_.size()));
    for (size_t i = states_.size(); i < made.size(); ++i) results.push_back(Gathered(made[i], i - states_.size(), trip));
    if (conditional_) {
      results.insert(results.begin(), going);
      const ValueId condition = AddInput("condition", condition_);
      own_.pop_back();
      own_.insert(own_.begin(), condition);
    }
    return i_.EndRegion(results);
  }

  // If the body always returns true, no condition is needed.
  void FindCondition(ValueId going) {
    conditional_ = parts_.condition != kNoValue;
    if (going == kNoValue) return;
    condition_ = i_.emitter().graph().type(going);
    if (condition_.dtype != DType::kBool || condition_.shape.elements() != 1)
      throw Error(ErrorCode::kType, "the condition of a loop must be a scalar bool, got " + condition_.ToString(), Describe(node_));
    const Tensor* known = i_.emitter().Constant(i_.emitter().Computed(going));
    conditional_ = conditional_ || known == nullptr || !known->as<bool>()[0];
  }

  void CheckStates(const std::vector<Binding>& before, const std::vector<ValueId>& made) const {
    const Emitter& body = i_.emitter();
    for (size_t i = 0; i < before.size(); ++i) {
      const ValueType first = body.graph().type(before[i].tensor), after = body.graph().type(made[i]);
      if (after != first) {
        Refuse("loop-carried value " + std::to_string(i) + " is " + first.ToString() + " before an iteration and " + after.ToString() +
                   " after it",
               "shapes are fixed when a model is compiled");
      }
      const Axes &begun = i_.emitter().extents().Of(before[i].tensor), &ended = i_.emitter().extents().Of(made[i]);
      for (int axis = 0; axis < first.shape.rank(); ++axis) {
        const auto had = begun.find(axis), has = ended.find(axis);
        if ((had == begun.end()) == (has == ended.end()) && (had == begun.end() || had->second == has->second)) continue;
        Refuse("the extent of axis " + std::to_string(axis) + " of loop-carried value " + std::to_string(i) +
                   " is data-dependent, and an iteration may change it",
               "make every iteration keep the number of elements");
      }
    }
  }

  // The number of valid elements of a gathered row must be the same in every iteration, because rows are stacked.
  void FindRowAxes(const RegionFrame& frame) {
    for (size_t i = 0; i < row_axes_.size(); ++i) {
      Axes outside;
      for (const auto& [axis, size] : row_axes_[i]) {
        if (frame.Outside(size, outside[axis + 1])) continue;
        Refuse("each iteration decides the extent of axis " + std::to_string(axis) + " of its row of loop output " +
                   std::to_string(states_.size() + i),
               "make every iteration produce the same number of elements");
      }
      if (!parts_.counted.known()) outside[0] = parts_.counted;
      row_axes_[i] = std::move(outside);
    }
  }

  void Declare(const std::vector<ValueId>& made) {
    DataExtents& extents = i_.emitter().extents();
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i] == kNoValue) continue;
      const Axes axes = i < states_.size() ? extents.Of(states_[i]) : row_axes_[i - states_.size()];
      for (const auto& [axis, size] : axes) extents.Declare(made[i], axis, size);
    }
  }

  ValueId Append(const std::string& op, std::vector<ValueId> inputs, const std::string& name, const ValueType& type) {
    Node node{.op = op, .domain = op == "SetRow" ? std::string(kGradloomDomain) : "", .inputs = std::move(inputs)};
    node.origin = node_.origin;
    return i_.emitter().Append(std::move(node), {name}, {type})[0];
  }

  ValueId Next(ValueId trip) {
    return Append("Add", {trip, i_.emitter().AddConstant("one", Tensor::Scalar<int64_t>(1))}, "trip_next", {DType::kInt64, {}});
  }

  ValueId Gathered(ValueId row, size_t output, ValueId trip) {
    if (bound_ < 0 || conditional_) {
      Refuse("the number of rows of loop output " + std::to_string(states_.size() + output) + " is not known at compile time",
             "shapes are fixed when a model is compiled: give the loop a constant trip count");
    }
    ValueType type = i_.emitter().graph().type(row);
    row_axes_.push_back(i_.emitter().extents().Of(row));
    std::vector<int64_t> dims{bound_};
    dims.insert(dims.end(), type.shape.begin(), type.shape.end());
    type.shape = Shape(dims);
    gathered_.push_back(type);
    const ValueId rows = AddInput("rows", type);
    return Append("SetRow", {rows, parts_.place(trip, output), row}, "rows_next", type);
  }

  void AddOperands() {
    if (!conditional_ && parts_.trips > kMaxTrips) {
      throw Error(ErrorCode::kLimit,
                  "a loop has " + std::to_string(parts_.trips) + " iterations; the limit is " + std::to_string(kMaxTrips), Describe(node_));
    }
    Emitter& outer = i_.emitter();
    const std::string& origin = node_.origin;
    node_.inputs = {parts_.trip_count};
    if (conditional_) {
      ValueId start = parts_.condition != kNoValue ? parts_.condition : outer.AddConstant(origin + "/going", Tensor::Scalar<bool>(true));
      if (outer.graph().value(start).shape != condition_.shape)
        start = i_.EmitOp("Reshape", {start, i_.Ints(origin, condition_.shape.dims())}, {}, origin, "");
      node_.inputs.push_back(start);
    }
    node_.inputs.push_back(outer.AddConstant(origin + "/first", Tensor::Scalar<int64_t>(0)));
    node_.inputs.insert(node_.inputs.end(), states_.begin(), states_.end());
    for (const ValueType& type : gathered_) {
      // Not a constant, which would be as large as the gathered rows. Rows of iterations that are not run are padding, from which finite
      // results must be computed.
      const double fill = !parts_.counted.known() && IsFloating(type.dtype) ? 1 : 0;
      const ValueId first = outer.AddConstant(origin + "/unset", Converted(Tensor::Scalar<double>(fill).view(), type.dtype));
      node_.inputs.push_back(Append("Expand", {first, i_.Ints(origin, type.shape.dims())}, origin + "/rows", type));
    }
  }

  Importer& i_;
  const LoopParts& parts_;
  Node node_;
  std::vector<ValueId> states_;
  std::vector<ValueId> own_;  // the body's inputs except captured values
  int64_t bound_ = -1;        // on the iterations; -1: none
  std::vector<ValueType> gathered_;
  std::vector<Axes> row_axes_;  // first of rows in the body, then of gathered outputs
  bool conditional_ = false;
  ValueType condition_{DType::kBool, {}};
};

std::vector<ValueId> Importer::RunLoopRegion(const LoopParts& parts, const std::string& origin, const Scope& scope) {
  return LoopRegion(*this, parts, origin).Run(scope);
}

}  // namespace gradloom

#include "compiler/onnx/emitter.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "compiler/onnx/batch/batch_axis.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/standard_schemas.h"
#include "compiler/ops/op.h"
#include "kernels/reference/dynamic.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

// A shape operand has few elements; evaluating more would not be shape arithmetic.
constexpr int64_t kMaxForcedBytes = 1 << 20;

KernelCall CallOf(const Graph& graph, const Node& node, const std::vector<ValueType>& types) {
  KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
  for (ValueId id : node.inputs) {
    call.inputs.push_back(id == kNoValue ? OperandType{} : OperandType{graph.value(id).dtype, graph.value(id).shape, Layout{}});
  }
  for (const ValueType& type : types) call.outputs.push_back({type.dtype, type.shape, Layout{}});
  return call;
}

// Whether an operator always gives the same result for the same inputs.
bool IsDeterministic(std::string_view domain, const std::string& op) {
  const Op* row = FindOp(domain, op);
  if (row != nullptr && row->has(kRandom)) return false;
  const onnx::OpSchema* schema = FindSchema(domain, op);
  return schema == nullptr || SchemaIsDeterministic(*schema);
}

}  // namespace

void Emitter::SetFlag(std::vector<bool>& flags, ValueId id) {
  if (flags.size() <= static_cast<size_t>(id)) flags.resize(static_cast<size_t>(id) + 1);
  flags[static_cast<size_t>(id)] = true;
}

ValueId Emitter::AddConstant(const std::string& name, Tensor data, bool of_file) {
  const ValueId id = graph_.AddData(name, std::move(data), Role::kConst);
  graph_.value(id).derived = !of_file;
  SetFlag(computable_, id);
  if (of_file && IsFloating(graph_.value(id).dtype)) SetFlag(may_train_, id);
  return id;
}

const Tensor* Emitter::Constant(ValueId id) const {
  return id != kNoValue && graph_.value(id).role == Role::kConst ? graph_.data(id) : nullptr;
}

const Node* Emitter::Producer(ValueId id) const {
  const int position = static_cast<size_t>(id) < producer_.size() ? producer_[static_cast<size_t>(id)] : -1;
  return position < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(position)];
}

ValueId Emitter::Computed(ValueId id) {
  if (id == kNoValue || Constant(id) != nullptr) return id;
  if (!Flag(computable_, id) || graph_.value(id).bytes() > kMaxForcedBytes) return kNoValue;
  // Finds the nodes that the value depends on by depth-first search with an explicit stack, because chains can be long.
  std::vector<ValueId> stack{id};
  std::map<ValueId, Tensor> done;
  const auto known = [&](ValueId value) { return value == kNoValue || done.contains(value) || Constant(value) != nullptr; };
  while (!stack.empty()) {
    const ValueId top = stack.back();
    if (known(top)) {
      stack.pop_back();
      continue;
    }
    const Node& node = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(top)])];
    if (FindReference(node.domain, node.op) == nullptr) return kNoValue;
    const size_t before = stack.size();
    for (ValueId input : node.inputs) {
      if (!known(input)) stack.push_back(input);
    }
    if (stack.size() > before) continue;
    std::vector<ValueType> types;
    for (ValueId output : node.outputs) types.push_back(output == kNoValue ? ValueType{} : graph_.type(output));
    std::vector<Tensor> inputs;
    for (ValueId input : node.inputs)
      inputs.push_back(input == kNoValue ? Tensor() : done.contains(input) ? done[input] : *graph_.data(input));
    std::vector<Tensor> outputs = RunReference(CallOf(graph_, node, types), inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) done[node.outputs[i]] = std::move(outputs[i]);
    }
  }
  // Adds a new constant; the computed value stays for gradients that pass through it.
  return AddConstant(graph_.value(id).name + "/value", done[id]);
}

std::vector<ValueType> Emitter::InferTypes(Node& node) {
  try {
    return rules_.Infer(graph_, node);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported && e.code() != ErrorCode::kShape) throw;
    // A shape may depend on an operand that is only unknown because of weights or floating-point scalars. Replacing an operand by its value
    // cuts off its gradient, so integers are tried first, then all operands except the data.
    if (ForceOperands(node, [&](size_t i) { return !IsFloating(graph_.value(node.inputs[i]).dtype); })) {
      if (std::optional<std::vector<ValueType>> types = TryInfer(node)) return *types;
    }
    for (size_t last = node.inputs.size(); last-- > 0;) {
      if (!ForceOperands(node, [&](size_t i) { return i == last; })) continue;
      if (std::optional<std::vector<ValueType>> types = TryInfer(node)) return *types;
    }
  }
  return rules_.Infer(graph_, node);
}

std::optional<std::vector<ValueType>> Emitter::TryInfer(const Node& node) {
  try {
    return rules_.Infer(graph_, node);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported && e.code() != ErrorCode::kShape) throw;
    return std::nullopt;
  }
}

bool Emitter::ForceOperands(Node& node, const std::function<bool(size_t)>& chosen) {
  bool forced = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || !chosen(i)) continue;
    const ValueId computed = Computed(node.inputs[i]);
    if (computed == kNoValue || computed == node.inputs[i]) continue;
    node.inputs[i] = computed;
    forced = true;
  }
  return forced;
}

std::vector<int64_t> Emitter::GatheredShape(const Graph& graph, const Node& node) {
  const Shape &data = graph.value(node.inputs[0]).shape, &indices = graph.value(node.inputs[1]).shape;
  std::vector<int64_t> dims(indices.begin(), indices.end());
  if (node.op == "GatherND") {
    if (!dims.empty()) dims.pop_back();
    return dims;
  }
  const int64_t given = node.attributes.Int("axis", 0), axis = given < 0 ? given + data.rank() : given;
  if (axis < 0 || axis >= data.rank()) return {};
  dims.insert(dims.begin(), data.begin(), data.begin() + axis);
  dims.insert(dims.end(), data.begin() + axis + 1, data.end());
  return dims;
}

void Emitter::ReshapeTo(Node& node, const std::vector<int64_t>& target) {
  node.op = "Reshape";
  node.attributes = {};
  node.inputs[1] = AddConstant(node.origin + "/shape", Tensor::From<int64_t>(target, Shape{static_cast<int64_t>(target.size())}));
}

// GatherElements of a vector equals Gather, for which more is known; for example a schedule that is indexed by the time of each sample.
void Emitter::GatherFromVector(Node& node) const {
  if (node.op != "GatherElements" || !node.domain.empty() || node.inputs.size() != 2) return;
  for (ValueId id : node.inputs) {
    if (id == kNoValue || graph_.value(id).shape.rank() != 1) return;
  }
  node.op = "Gather";
}

// A Squeeze without axes, PyTorch's `squeeze()`, removes axes that are 1 at this batch size. It must not remove the batch axis, too, where
// a device has a single sample.
void Emitter::NameSqueezed(Node& node) {
  if (node.op != "Squeeze" || !node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNoValue) return;
  if (node.inputs.size() > 1 && node.inputs[1] != kNoValue) return;
  const Shape& shape = graph_.value(node.inputs[0]).shape;
  std::vector<int64_t> axes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) axes.push_back(axis);
  }
  if (axes.empty()) return;  // no axes would again mean all of them
  const Shape count{static_cast<int64_t>(axes.size())};
  node.inputs.resize(1);
  node.inputs.push_back(AddConstant(node.origin + "/axes", Tensor::From<int64_t>(axes, count)));
}

namespace {

// A Flatten of everything into one row, as old converters of Keras write it for a single sample. As a Reshape it shows the number in its
// target that may be the batch size.
void ReshapeToRow(Emitter& emitter, Node& node) {
  if (node.op != "Flatten" || !node.domain.empty() || node.inputs.size() != 1 || node.inputs[0] == kNoValue) return;
  const int64_t axis = node.attributes.Int("axis", 1);
  if (axis != 0 && axis != -emitter.graph().value(node.inputs[0]).shape.rank()) return;
  node.inputs.push_back(kNoValue);
  emitter.ReshapeTo(node, {1, -1});
}

}  // namespace

// Exporters write gathers that take all elements in order: PyTorch's for as_strided (the mean over an image) and for a mask indexed by all
// its positions. A Reshape does not mix samples, needs no indices, and its gradient is not a scatter.
void Emitter::ReshapeInOrder(Node& node) {
  const bool slices = node.op == "Gather", elements = node.op == "GatherND" && node.attributes.Int("batch_dims", 0) == 0;
  if (!node.domain.empty() || (!slices && !elements) || node.inputs.size() != 2 || node.inputs[0] == kNoValue) return;
  const Tensor* indices = Constant(node.inputs[1]);
  const Shape& data = graph_.value(node.inputs[0]).shape;
  // A lookup table is kept: the lookup shows that it is one.
  if (indices == nullptr || data.rank() < 1 || Constant(node.inputs[0]) != nullptr || may_train(node.inputs[0])) return;
  // Indices along the axis, or one component for each axis.
  const int64_t given = node.attributes.Int("axis", 0);
  const int axis = static_cast<int>(given < 0 ? given + data.rank() : given);
  if (slices && (axis < 0 || axis >= data.rank())) return;
  const Shape chosen = slices ? Shape{data[axis]} : data;
  const int64_t width = chosen.rank(), count = chosen.elements();
  if (count < 2 || indices->elements() != count * width) return;
  if (elements && (indices->shape().rank() < 1 || indices->shape()[indices->shape().rank() - 1] != width)) return;
  const std::vector<int64_t> places = IntValues(indices->view()), strides = chosen.strides();
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (int64_t k = 0; k < width; ++k) {
      const int64_t place = places[static_cast<size_t>(i * width + k)];
      if (place < 0 || place >= chosen[static_cast<int>(k)]) return;
      at += place * strides[static_cast<size_t>(k)];
    }
    if (at != i) return;
  }
  const std::vector<int64_t> target = GatheredShape(graph_, node);
  // An extent of 0 has a special meaning in Reshape.
  if (std::find(target.begin(), target.end(), 0) == target.end()) ReshapeTo(node, target);
}

// Computes Shape and Size, which only need types.
bool Emitter::ShapeOnly(const Node& node, Tensor& result) const {
  if (!node.domain.empty() || node.inputs.empty() || (node.op != "Shape" && node.op != "Size")) return false;
  const Shape& shape = graph_.value(node.inputs[0]).shape;
  if (node.op == "Size") {
    result = Tensor::Scalar<int64_t>(shape.elements());
    return true;
  }
  const int64_t rank = shape.rank();
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = clamp(node.attributes.Int("start", 0)), end = std::max(begin, clamp(node.attributes.Int("end", rank)));
  std::vector<int64_t> dims(shape.begin() + begin, shape.begin() + end);
  const int64_t count = static_cast<int64_t>(dims.size());
  result = Tensor::From<int64_t>(dims, Shape{count});
  return true;
}

bool Emitter::Computable(const Node& node) const {
  if (!node.regions.empty() || !IsDeterministic(node.domain, node.op)) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return id == kNoValue || Flag(computable_, id); });
}

bool Emitter::Foldable(const Node& node, const std::vector<ValueType>& types, const std::vector<std::string>& names) const {
  if (FindReference(node.domain, node.op) == nullptr) return false;
  bool weights = false, floating = false;
  for (ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    if (graph_.value(id).role != Role::kConst || graph_.data(id) == nullptr) return false;
    if (!Flag(may_train_, id)) continue;
    weights = true;
    // Results such as where a weight is positive, or which of its elements is the largest, change with training. A single number is usually
    // written in the code.
    floating = floating || graph_.data(id)->elements() > 1;
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    if (names[i].empty()) continue;
    floating = floating || IsFloating(types[i].dtype);
    bytes += types[i].bytes();
  }
  if (weights && floating) return false;
  return bytes <= limits_.fold_bytes && folded_bytes_ + bytes <= limits_.fold_total_bytes;
}

std::vector<Tensor> Emitter::Run(const Node& node, const std::vector<ValueType>& types) {
  std::vector<Tensor> inputs;
  for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Tensor() : *graph_.data(id));
  try {
    return RunReference(CallOf(graph_, node, types), inputs);
  } catch (const Error& e) {
    // An index out of range is a data error in training, and a model error in a constant.
    const ErrorCode code = e.code() == ErrorCode::kData ? ErrorCode::kValue : e.code();
    throw Error(code, e.message(), e.where().empty() ? Describe(node) : e.where(), e.help());
  }
}

void Emitter::CheckSizes(const Node& node, const std::vector<ValueType>& types) const {
  for (const ValueType& type : types) {
    if (type.dtype == DType::kUndefined || type.bytes() <= limits_.value_bytes) continue;
    throw Error(ErrorCode::kLimit,
                "an output of shape " + type.shape.ToString() + " takes " + std::to_string(type.bytes()) + " bytes; the limit is " +
                    std::to_string(limits_.value_bytes) + " per value",
                Describe(node));
  }
}

std::vector<ValueId> Emitter::EmitKnown(const Node& node, const std::vector<std::string>& names) {
  std::vector<Tensor> inputs;
  for (ValueId id : node.inputs) {
    const ValueId computed = Computed(id);
    // Trained tensors count as data.
    if (id != kNoValue && (computed == kNoValue || Flag(may_train_, id))) {
      throw Error(ErrorCode::kUnsupported,
                  "the size of output 0 of " + Escaped(node.op) + " is not known at compile time; it depends on the data of '" +
                      Escaped(graph_.value(id).name) + "'",
                  Describe(node), "shapes are fixed when a model is compiled: make this operand a constant");
    }
    inputs.push_back(id == kNoValue ? Tensor() : *Constant(computed));
  }
  std::vector<Tensor> made;
  try {
    made = FindDynamic(node.domain, node.op)(CallOf(graph_, node, {}), inputs);
  } catch (const Error& e) {
    throw Error(e.code(), e.message(), e.where().empty() ? Describe(node) : e.where(), e.help());
  }
  std::vector<ValueId> results(names.size(), kNoValue);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) results[i] = AddConstant(names[i], made.at(i));
  }
  return results;
}

void Emitter::CheckCount(const Node& node) const {
  if (static_cast<int64_t>(graph_.nodes.size()) < limits_.nodes) return;
  throw Error(ErrorCode::kLimit,
              "the model has more than " + std::to_string(limits_.nodes) + " nodes after functions are inlined and loops unrolled",
              Describe(node));
}

std::vector<ValueId> Emitter::Append(Node node, const std::vector<std::string>& names, const std::vector<ValueType>& types) {
  CheckCount(node);
  CheckSizes(node, types);
  node.outputs.assign(names.size(), kNoValue);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) node.outputs[i] = AddOutput(names[i], types[i]);
  }
  const std::vector<ValueId> results = node.outputs;
  graph_.AddNode(std::move(node));
  return results;
}

// Adds an output of the node that is added next.
ValueId Emitter::AddOutput(const std::string& name, const ValueType& type) {
  const ValueId id = graph_.AddValue(name, type.dtype, type.shape, Role::kActivation);
  if (producer_.size() <= static_cast<size_t>(id)) producer_.resize(static_cast<size_t>(id) + 1, -1);
  producer_[static_cast<size_t>(id)] = static_cast<int>(graph_.nodes.size());
  return id;
}

// Whether the node is a Dropout that drops nothing. It is not random: what it computes from weights is known.
bool Emitter::DropsNothing(const Node& node) const {
  if (node.op != "Dropout" || !node.domain.empty() || node.inputs.size() < 2 || node.inputs[1] == kNoValue) return false;
  const Tensor* ratio = Constant(node.inputs[1]);
  return ratio != nullptr && ratio->elements() == 1 && IsFloating(ratio->dtype()) && ElementAsDouble(ratio->view(), 0) == 0;
}

std::vector<ValueId> Emitter::Emit(Node node, const std::vector<std::string>& names) {
  if (!names.empty() && !names[0].empty() && DropsNothing(node)) {
    // The old exporter names the mask even if nothing reads it.
    std::vector<ValueId> results(names.size(), kNoValue);
    if (names.size() > 1 && !names[1].empty()) results[1] = Emit(node, {"", names[1]})[1];
    results[0] = Emit({.op = "Identity", .domain = "", .inputs = {node.inputs[0]}, .origin = node.origin}, {names[0]})[0];
    return results;
  }
  return extents_.MustExpand(node) ? extents_.Emit(std::move(node), names) : EmitStatic(std::move(node), names);
}

bool Emitter::ComputeOn(const Node& node, const std::vector<Tensor>& operands, Tensor& result) const {
  if (FindReference(node.domain, node.op) == nullptr) return false;
  Node shaped = node;
  shaped.outputs = {kNoValue};
  KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
  for (const Tensor& operand : operands) {
    call.inputs.push_back(operand.defined() ? OperandType{operand.dtype(), operand.shape(), Layout{}} : OperandType{});
  }
  call.outputs = {{DType::kInt64, rules_.Infer(graph_, shaped)[0].shape, Layout{}}};
  result = RunReference(call, operands)[0];
  return true;
}

std::vector<ValueId> Emitter::EmitStatic(Node node, const std::vector<std::string>& names) {
  std::vector<ValueId> results(names.size(), kNoValue);
  CheckCount(node);
  node.outputs.assign(names.size(), kNoValue);
  if (FindDynamic(node.domain, node.op) != nullptr) return EmitKnown(node, names);
  ReshapeInOrder(node);
  GatherFromVector(node);
  NameSqueezed(node);
  ReshapeToRow(*this, node);
  if (batch_observer_ != nullptr) batch_observer_->Before(*this, node);
  const std::vector<ValueType> types = InferTypes(node);
  CheckSizes(node, types);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty() && types[i].dtype == DType::kUndefined) {
      throw Error(ErrorCode::kUnsupported, "output " + std::to_string(i) + " of " + Escaped(node.op) + " has an unknown type",
                  Describe(node));
    }
  }
  const bool computable = Computable(node);
  Tensor shape;
  std::vector<Tensor> folded;
  if (ShapeOnly(node, shape)) {
    folded = {shape};
  } else if (computable && Foldable(node, types, names)) {
    folded = Run(node, types);
  }
  for (size_t i = 0; i < folded.size(); ++i) {
    if (names[i].empty()) continue;
    folded_bytes_ += folded[i].bytes();
    results[i] = AddConstant(names[i], folded[i]);
  }
  if (!folded.empty()) {
    if (batch_observer_ != nullptr) batch_observer_->After(*this, node, results);
    return results;
  }
  bool weights = false;
  for (ValueId id : node.inputs) weights = weights || (id != kNoValue && Flag(may_train_, id));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const ValueId id = results[i] = node.outputs[i] = AddOutput(names[i], types[i]);
    if (computable) SetFlag(computable_, id);
    if (computable && weights && IsFloating(types[i].dtype)) SetFlag(may_train_, id);
  }
  if (batch_observer_ != nullptr) batch_observer_->After(*this, node, results);
  graph_.AddNode(std::move(node));
  return results;
}

}  // namespace gradloom

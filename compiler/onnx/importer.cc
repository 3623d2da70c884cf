#include "compiler/onnx/importer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/onnx/equal_elements.h"
#include "compiler/onnx/extents/masked_writes.h"
#include "compiler/onnx/keep_outputs.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/standard_domain.h"
#include "compiler/onnx/torch/detached.h"
#include "compiler/onnx/torch/module_parameters.h"
#include "compiler/onnx/torch/torch_clamp.h"
#include "compiler/onnx/torch/torch_source.h"
#include "compiler/onnx/torch/unrecorded.h"
#include "compiler/onnx/training_info.h"
#include "compiler/onnx/translate/upgrade.h"
#include "runtime/base/suggestion.h"

namespace gradloom {

Importer::Importer(const ModelFile& file, const ImportOptions& options, BatchObserver* watch)
    : file_(file),
      options_(options),
      emitter_(*(result_.graph = std::make_unique<Graph>()), rules_, file_.options.limits),
      functions_(file.proto),
      opsets_(VersionsOf(file.proto)),
      stops_(options.training_info >= 0 || options.initialization ? std::vector<std::string>() : options.detached) {
  emitter().set_batch_observer(watch);
}

ImportedGraph Importer::Run() {
  CheckUnsupported();
  const std::vector<const onnx::GraphProto*> graphs = GraphsOf(file_, options_);
  result_.graph->name = graphs[0]->name();
  result_.module_parameters = ModuleParameters(file_);
  result_.divided_parameters = DividedParameters(file_);
  result_.computed_parameters = ComputedParameters(file_);
  result_.names_attributes = IsTracedByTorch(file_.proto);
  for (std::string& warning : WarningsOfUnrecorded(*graphs[0])) result_.warnings.push_back(std::move(warning));
  FindUpdated(graphs);
  FindDetached();
  Scope scope;
  scope.opsets = &opsets_;
  for (const onnx::GraphProto* graph : graphs) AddInitializers(*graph, scope);
  AddInputs(scope);
  stops_.RecordGraph(*graphs[0]);
  if (KeepsAll()) {
    for (const onnx::GraphProto* graph : graphs) RunNodes(graph->node(), scope);
  } else {
    const std::vector<bool> needed = NodesNeededFor(*graphs[0], options_.outputs);
    RunNodes(graphs[0]->node(), scope, &needed);
  }
  stops_.Check();
  AddBindings(scope);
  for (const onnx::GraphProto* graph : graphs) {
    CheckInner(*graph, scope);
    AddOutputs(*graph, scope);
  }
  return std::move(result_);
}

bool Importer::KeepsAll() const { return options_.outputs.empty() || options_.training_info >= 0 || options_.initialization; }

void Importer::AddInitializers(const onnx::GraphProto& graph, Scope& scope) {
  for (const auto& tensor : graph.initializer()) scope.names[tensor.name()] = {ConstantOf(&tensor), nullptr};
  for (const auto& tensor : graph.sparse_initializer()) scope.names[tensor.values().name()] = {ConstantOf(&tensor), nullptr};
}

// Tensors of bodies belong to the outermost graph, where trained tensors must be.
ValueId Importer::ConstantOf(const void* site) {
  auto made = constants_.find(site);
  if (made == constants_.end()) {
    const ModelTensor& tensor = file_.tensors.at(site);
    // Updated tensors are states, not constants.
    const ValueId id = updated_.contains(site) ? result_.graph->AddData(tensor.name, tensor.data, Role::kState)
                                               : emitter_.AddConstant(tensor.name, tensor.data, /*of_file=*/true);
    made = constants_.emplace(site, id).first;
  }
  return Inner(made->second, 0);
}

void Importer::AddOutputs(const onnx::GraphProto& graph, const Scope& scope) {
  for (const auto& info : graph.output()) {
    if (!KeepsAll() && std::find(options_.outputs.begin(), options_.outputs.end(), info.name()) == options_.outputs.end()) continue;
    const Binding* binding = Find(info.name(), scope);
    const std::string where = "output '" + Escaped(info.name()) + "'";
    if (binding == nullptr) throw Error(ErrorCode::kGraph, "no node produces this graph output", where);
    // Next values are kept between steps, and are not fetched.
    const auto is_updated_by = [&](const auto& update) { return binding->tensor == emitter().Producer(update.second)->inputs[0]; };
    if (&graph != &file_.proto.graph() && std::any_of(result_.updates.begin(), result_.updates.end(), is_updated_by)) continue;
    CheckDeclared(info, *binding, "a graph output", where);
    if (binding->sequence != nullptr) {
      for (size_t i = 0; i < binding->sequence->size(); ++i) AddOutput(info.name() + "/" + std::to_string(i), (*binding->sequence)[i]);
    } else if (binding->tensor != kNoValue) {
      AddOutput(info.name(), binding->tensor);
    } else if (info.type().value_case() != onnx::TypeProto::kOptionalType) {
      throw Error(ErrorCode::kUnsupported, "a graph output must be a tensor", where);
    }
  }
  if (KeepsAll()) return;
  // Values inside the graph that are asked for as outputs.
  const auto& listed = graph.output();
  for (const std::string& name : options_.outputs) {
    if (std::any_of(listed.begin(), listed.end(), [&](const onnx::ValueInfoProto& info) { return info.name() == name; })) continue;
    const Binding* binding = Find(name, scope);
    if (binding == nullptr || binding->tensor == kNoValue)
      throw Error(ErrorCode::kUnsupported, "a value that is asked for as an output must be a tensor", "value '" + Escaped(name) + "'");
    AddOutput(name, binding->tensor);
  }
}

// Adds the numbers of valid elements of an output as outputs.
void Importer::AddExtents(const std::string& name, ValueId value, ValueId output) {
  for (const auto& [axis, scalar] : emitter_.extents().ScalarsOf(value)) {
    const ValueId count = AddOutput("extent " + std::to_string(axis) + " of " + name, scalar);
    result_.extents[output].emplace(axis, count);
  }
}

ValueId Importer::AddOutput(const std::string& name, ValueId value) {
  ValueId id = value;
  Graph& graph = *result_.graph;
  const bool taken = std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
  if (graph.value(id).name != name || graph.value(id).role != Role::kActivation || taken) {
    Node node;
    node.op = "Identity";
    node.inputs = {id};
    node.outputs = {graph.AddValue(name, graph.value(id).dtype, graph.value(id).shape, Role::kActivation)};
    node.origin = name;
    id = node.outputs[0];
    graph.AddNode(std::move(node));
  }
  if (graph.value(id).name != name) result_.output_names.emplace(id, name);
  graph.outputs.push_back(id);
  AddExtents(name, value, id);
  return id;
}

std::string Importer::NameOf(const std::string& name, const Scope& scope) const {
  const auto found = scope.renamed.find(name);
  return found != scope.renamed.end() ? found->second : scope.path + name;
}

std::string Importer::Origin(const onnx::NodeProto& proto, const Scope& scope) {
  std::string first_output;
  for (const std::string& output : proto.output()) {
    if (first_output.empty()) first_output = output;
  }
  std::string origin = scope.path + (proto.name().empty() ? proto.op_type() + "/" + first_output : proto.name());
  // Node names need not be unique, but random numbers are keyed by the origin.
  if (origins_.insert(origin).second) return origin;
  origin += "/" + first_output;
  std::string unique = origin;
  while (!origins_.insert(unique).second) unique = origin + "." + std::to_string(++origin_numbers_[origin]);
  return unique;
}

const Binding* Importer::Find(const std::string& name, const Scope& scope) {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    const auto found = s->names.find(name);
    if (found == s->names.end()) continue;
    const Binding& binding = found->second;
    if (s->depth == frames_.size()) return &binding;
    const auto [at, fresh] = frames_.back().translated.try_emplace(&binding);
    if (!fresh) return &at->second;
    Binding inner;
    if (binding.tensor != kNoValue) inner.tensor = Inner(binding.tensor, s->depth);
    if (binding.sequence != nullptr) {
      auto elements = *binding.sequence;
      for (ValueId& id : elements) id = Inner(id, s->depth);
      inner.sequence = std::make_shared<const std::vector<ValueId>>(std::move(elements));
    }
    if (binding.rows != kNoValue) inner.rows = Inner(binding.rows, s->depth);
    return &(frames_.back().translated[&binding] = inner);
  }
  return nullptr;
}

const Binding& Importer::Lookup(const std::string& name, const onnx::NodeProto& proto, const Scope& scope) {
  const Binding* found = Find(name, scope);
  if (found != nullptr) return *found;
  std::vector<std::string> names;
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    for (const auto& [known, binding] : s->names) names.push_back(known);
  }
  std::sort(names.begin(), names.end());
  throw Error(ErrorCode::kGraph, "input '" + Escaped(name) + "' is not defined",
              Escaped(proto.op_type()) + " '" + Escaped(scope.path + proto.name()) + "'", Suggestion(name, names));
}

std::string WhereOf(const onnx::NodeProto& proto, const Scope& scope) {
  return Escaped(proto.op_type()) + " '" +
         Escaped(scope.path + (proto.name().empty() && proto.output_size() > 0 ? proto.output(0) : proto.name())) + "'";
}

ValueId Importer::TensorOf(const std::string& name, const onnx::NodeProto& proto, const Scope& scope) {
  if (name.empty()) return kNoValue;
  const Binding& binding = Lookup(name, proto, scope);
  if (binding.sequence != nullptr || binding.rows != kNoValue) {
    throw Error(ErrorCode::kType, "input '" + Escaped(name) + "' is a sequence; expected a tensor", WhereOf(proto, scope));
  }
  return binding.tensor;
}

ValueId Importer::NeededTensorOf(const std::string& name, const onnx::NodeProto& proto, const Scope& scope) {
  // A name may stand for nothing: an empty optional, or an input that the call of a function omits.
  const ValueId id = TensorOf(name, proto, scope);
  if (id == kNoValue) throw Error(ErrorCode::kArity, "a required input is missing", WhereOf(proto, scope));
  return id;
}

void Importer::RunNodes(const NodeList& nodes, Scope& scope, const std::vector<bool>* needed) {
  const MaskedWrites writes(nodes);
  for (int i = 0; i < nodes.size(); ++i) {
    const onnx::NodeProto& node = nodes[i];
    if ((needed != nullptr && !(*needed)[static_cast<size_t>(i)]) || writes.IsOnlyFor(node)) {
      stops_.RecordSkipped(node);
    } else if (const MaskedWrite* write = writes.Find(node)) {
      RunMaskedWrite(*write, node, scope);
    } else {
      RunNode(node, scope);
    }
  }
}

void Importer::RunNode(const onnx::NodeProto& proto, Scope& scope) {
  stops_.empty() ? RunAsWritten(proto, scope) : RunWithStops(proto, scope);
}

void Importer::RunAsWritten(const onnx::NodeProto& proto, Scope& scope) {
  if (const onnx::FunctionProto* function = functions_.Find(proto)) return RunFunction(*function, proto, scope);
  if (RunSpecial(proto, scope)) return;
  RunOperator(proto, scope);
}

Node Importer::MakeNode(const onnx::NodeProto& proto, Scope& scope) {
  Node node;
  node.op = proto.op_type();
  node.domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  node.origin = Origin(proto, scope);
  if (proto.input_size() > file_.options.limits.node_inputs) {
    throw Error(
        ErrorCode::kLimit,
        "a node has " + std::to_string(proto.input_size()) + " inputs; the limit is " + std::to_string(file_.options.limits.node_inputs),
        Describe(node));
  }
  for (const std::string& input : proto.input()) node.inputs.push_back(TensorOf(input, proto, scope));
  while (!node.inputs.empty() && node.inputs.back() == kNoValue) node.inputs.pop_back();
  AddAttributes(proto, scope, node);
  const std::set<int>* detached = detached_ ? detached_->OperandsOf(proto) : nullptr;
  for (int i : detached != nullptr ? *detached : std::set<int>()) {
    // A call may omit an input of a function.
    if (static_cast<size_t>(i) >= node.inputs.size() || node.inputs[static_cast<size_t>(i)] == kNoValue) continue;
    ValueId& id = node.inputs[static_cast<size_t>(i)];
    id = Stopped(id, node.origin, emitter().graph().value(id).name + "/detached");
  }
  return node;
}

// Replaces casts to the type of another tensor by ordinary casts: types are known here, and the other tensor is not read. Returns true if
// the cast changes nothing.
bool Importer::CastsToItself(Node& node) const {
  if (!node.domain.empty() || (node.op != "Cast" && node.op != "CastLike")) return false;
  const Graph& graph = emitter().graph();
  if (node.op == "CastLike") {
    node.op = "Cast";
    node.attributes.set("to", static_cast<int64_t>(graph.value(node.inputs[1]).dtype));
    node.inputs.resize(1);
  }
  return node.attributes.Int("to", 0) == static_cast<int64_t>(graph.value(node.inputs[0]).dtype);
}

// PyTorch writes an RMSNormalization without weights with a scale of ones that has all extents of the input, including the batch size of
// the file, while ONNX's scale only has those that are normalized. If all elements are equal, that number becomes the scale. Otherwise the
// scale is removed from the node and returned, and the caller multiplies the result by it. Returns kNoValue in all other cases.
ValueId Importer::TakeWholeScale(Node& node) {
  if (node.op != "RMSNormalization" || !node.domain.empty() || node.inputs.size() != 2 || node.inputs[1] == kNoValue) return kNoValue;
  const Value &x = emitter().graph().value(node.inputs[0]), &scale = emitter().graph().value(node.inputs[1]);
  const int rank = x.shape.rank(), more = scale.shape.rank() - rank + NormalAxis(node.attributes.Int("axis", -1), rank).value_or(rank);
  if (more <= 0 || scale.shape.rank() > rank || scale.dtype != x.dtype || !IsFloating(x.dtype)) return kNoValue;
  const Shape row(std::vector<int64_t>(scale.shape.begin() + more, scale.shape.end()));
  const Tensor* numbers = emitter().Constant(scale.id);
  if (numbers != nullptr && numbers->elements() > 0 && Broadcast(row, x.shape) == x.shape) {
    if (HasEqualElements(*numbers)) {
      node.inputs[1] = emitter().AddConstant(node.origin + "/scale", Tensor::Copy({x.dtype, {1}, numbers->data()}));
      return kNoValue;
    }
  }
  if (Broadcast(scale.shape, x.shape) != x.shape) return kNoValue;
  Tensor one = Converted(Tensor::Scalar(1.0F).view(), x.dtype).Reshaped({1});
  return std::exchange(node.inputs[1], emitter().AddConstant(node.origin + "/one", std::move(one)));
}

// An RMSNormalization whose scale has another type than its input is computed in a type that holds both. The result has the input's type,
// as by ONNX's type inference and its reference implementation, although its text says the scale's. Returns the type to which the caller
// converts the result; kUndefined if it has that type, as for all other nodes.
DType Importer::WidenScaled(Node& node) {
  if (node.op != "RMSNormalization" || !node.domain.empty() || node.inputs.size() != 2) return DType::kUndefined;
  if (node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) return DType::kUndefined;
  const auto type = [&](size_t i) { return emitter().graph().value(node.inputs[i]).dtype; };
  const DType x = type(0);
  if (type(1) == x) return DType::kUndefined;
  const DType wide = x == DType::kFloat64 || type(1) == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  for (size_t i = 0; i < 2; ++i) {
    if (type(i) == wide) continue;
    const std::string name = node.origin + (i == 0 ? "/input" : "/scale");
    node.inputs[i] = EmitOp("Cast", {node.inputs[i]}, {{"to", static_cast<int64_t>(wide)}}, node.origin, name);
  }
  return wide == x ? DType::kUndefined : x;
}

void Importer::RunOperator(const onnx::NodeProto& proto, Scope& scope) {
  Node node = MakeNode(proto, scope);
  const auto version = scope.opsets->find(node.domain);
  if (version == scope.opsets->end()) {
    throw Error(ErrorCode::kUnsupported, "the model does not import the domain '" + Escaped(node.domain) + "'", Describe(node));
  }
  const onnx::OpSchema* schema = FindSchema(node.domain, node.op, version->second);
  if (schema == nullptr) ThrowUnknownOperator(node);
  std::vector<std::string> names;
  for (const std::string& output : proto.output()) names.push_back(output.empty() ? "" : NameOf(output, scope));
  while (!names.empty() && names.back().empty()) names.pop_back();
  node.outputs.assign(names.size(), kNoValue);
  CheckNode(emitter().graph(), node, *schema);
  const DType narrow = WidenScaled(node);
  const ValueId scale = TakeWholeScale(node);
  size_t num_outputs = names.size();
  UpgradeNode(emitter(), node, schema->since_version(), static_cast<size_t>(proto.output_size()), num_outputs);
  RestoreTorchClamp(emitter(), proto, node);
  names.resize(num_outputs);
  node.outputs.assign(num_outputs, kNoValue);
  // Old classifiers name the mask, but rarely read it.
  const bool mask_of_data = node.op == "Dropout" && node.domain.empty() && schema->since_version() < 10 && num_outputs > 1;
  const std::string origin = node.origin;
  std::vector<ValueId> results;
  if (CastsToItself(node)) {
    results = {node.inputs[0]};
  } else if (!ExpandBySchema(node, proto, scope, names, results)) {
    const bool is_result = scale == kNoValue && narrow == DType::kUndefined;
    results = emitter().Emit(std::move(node), is_result ? names : std::vector<std::string>{origin + "/normalized"});
  }
  if (detached_ && proto.op_type() == "Gather" && IsStandardDomain(proto.domain())) {
    if (const std::optional<int64_t> row = PaddingRow(proto)) results[0] = WithoutGradientOfRow(*row, proto, scope, results[0]);
  }
  if (scale != kNoValue) results[0] = EmitOp("Mul", {results[0], scale}, {}, origin, narrow == DType::kUndefined ? names[0] : "");
  if (narrow != DType::kUndefined) results[0] = EmitOp("Cast", {results[0]}, {{"to", static_cast<int64_t>(narrow)}}, origin, names[0]);
  if (mask_of_data) {
    const DType dtype = emitter().graph().value(results[0]).dtype;
    results[1] = EmitOp("Cast", {results[1]}, {{"to", static_cast<int64_t>(dtype)}}, origin, "");
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!names[i].empty()) scope.names.insert_or_assign(proto.output(static_cast<int>(i)), Binding{results[i], nullptr});
  }
}

bool Importer::RunSpecial(const onnx::NodeProto& proto, Scope& scope) {
  if (proto.domain() == "ai.onnx.preview.training" && proto.op_type() == "Gradient") {
    RunGradient(proto, scope);
    return true;
  }
  if (!IsStandardDomain(proto.domain())) return false;
  const std::string& op = proto.op_type();
  if (op == "Constant") {
    RunConstant(proto, scope);
    return true;
  }
  if (op == "If" || op == "Loop" || op == "Scan") {
    op == "If" ? RunIf(proto, scope) : op == "Loop" ? RunLoop(proto, scope) : RunScan(proto, scope);
    return true;
  }
  if (op == "Identity" && proto.input_size() == 1 && proto.output_size() == 1) {
    // Binds the same value to another name; a graph output gets a node at the end.
    Binding same = Lookup(proto.input(0), proto, scope);
    if (same.tensor != kNoValue && detached_ && detached_->IsDetach(proto)) {
      same.tensor = Stopped(same.tensor, Origin(proto, scope), NameOf(proto.output(0), scope));
    }
    scope.names.insert_or_assign(proto.output(0), same);
    return true;
  }
  if (op == "SequenceMap") {
    RunSequenceMap(proto, scope);
    return true;
  }
  return RunSequence(proto, scope);
}

void Importer::RunConstant(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where =
      "Constant '" + Escaped(scope.path + (proto.name().empty() && proto.output_size() > 0 ? proto.output(0) : proto.name())) + "'";
  if (proto.output_size() != 1 || proto.input_size() != 0)
    throw Error(ErrorCode::kArity, "operator 'Constant' must have no input and one output", where);
  if (proto.attribute_size() != 1) throw Error(ErrorCode::kAttr, "operator 'Constant' must have exactly one attribute", where);
  const onnx::AttributeProto* attribute = Resolve(proto.attribute(0), scope);
  if (attribute == nullptr) throw Error(ErrorCode::kAttr, "the call does not give the attribute that this Constant refers to", where);
  const void* site = attribute->has_t()               ? static_cast<const void*>(&attribute->t())
                     : attribute->has_sparse_tensor() ? &attribute->sparse_tensor()
                                                      : nullptr;
  const std::string name = NameOf(proto.output(0), scope);
  ValueId id = kNoValue;
  if (site != nullptr && file_.tensors.contains(site)) {
    id = ConstantOf(site);
    const ModelTensor& tensor = file_.tensors.at(site);
    if (IsFloating(tensor.data.dtype())) result_.node_constants.insert(tensor.name);
  } else {
    id = emitter().AddConstant(name, ConstantValue(proto.attribute(0).name(), *attribute, where));
  }
  scope.names.insert_or_assign(proto.output(0), Binding{id, nullptr});
}

}  // namespace gradloom

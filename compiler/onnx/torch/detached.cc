#include "compiler/onnx/torch/detached.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/torch/torch_source.h"
#include "runtime/base/counted.h"

namespace gradloom {
namespace {

// Whether `name` is `word`, or `word` followed by a number: exporters name the first and later nodes this way.
bool HasBaseName(std::string_view name, std::string_view word) {
  if (!name.starts_with(word)) return false;
  name.remove_prefix(word.size());
  if (name.empty()) return true;
  if (name[0] != '_' || name.size() < 2) return false;
  return std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Whether an Identity is named like torch.export's detach(), node_detach_1 with output detach_1, whatever prefix both names got since
// (onnx.compose.add_prefix).
bool IsNamedDetach(std::string_view node, std::string_view output) {
  const size_t at = output.rfind("detach");
  if (at == std::string_view::npos || !HasBaseName(output.substr(at), "detach")) return false;
  const std::string_view prefix = output.substr(0, at);
  return node.starts_with(prefix) && HasBaseName(node.substr(at), "node_detach");
}

// Returns the values among the arguments of such a line, in order.
std::vector<std::string> ArgumentsOf(std::string_view source) {
  std::vector<std::string> names;
  for (size_t at = source.find("(args"); at < source.size(); ++at) {
    if (source[at] != '%') continue;
    size_t end = at + 1;
    while (end < source.size() && (std::isalnum(static_cast<unsigned char>(source[end])) != 0 || source[end] == '_')) ++end;
    names.emplace_back(source.substr(at + 1, end - at - 1));
    at = end - 1;
  }
  return names;
}

}  // namespace

// The nodes that one line of torch.export's graph was converted to.
struct DetachedValues::Source {
  std::vector<std::string> arguments;
  std::vector<const onnx::NodeProto*> nodes;
};

DetachedValues::DetachedValues(const onnx::ModelProto& model) : jax_(model.producer_name().starts_with("jax2onnx")) {
  std::set<std::string> constants;
  for (const auto& tensor : model.graph().initializer()) constants.insert(tensor.name());
  Search(model.graph().node(), constants);
  for (const onnx::FunctionProto& function : model.functions()) Search(function.node(), {});
  FindRemoved(model.graph());
}

// A detach() whose result only an operator read that the exporter has removed, too: x.detach().clone() leaves a node that reads x as
// %clone. So does x.clone(); but the line of code tells them apart, if no node of that line names the detached value itself.
void DetachedValues::FindRemoved(const onnx::GraphProto& graph) {
  std::map<std::string_view, std::vector<const onnx::NodeProto*>> lines;
  for (const onnx::NodeProto& node : graph.node()) {
    const std::vector<CodeFrame> frames = FramesOf(node);
    if (!frames.empty() && frames.back().text.find(".detach()") != std::string_view::npos) lines[frames.back().text].push_back(&node);
  }
  if (lines.empty()) return;
  const std::set<std::string_view> names = ValueNames(graph);
  for (const auto& [line, nodes] : lines) {
    const auto names_detached = [](const onnx::NodeProto* node) { return TorchSource(*node).find("%detach") != std::string_view::npos; };
    if (std::ranges::any_of(nodes, names_detached)) continue;
    for (const onnx::NodeProto* node : nodes) {
      if (!TorchCall(TorchSource(*node)).RemovedOperands(names).empty()) ambiguous_.push_back(node->name());
    }
  }
}

bool DetachedValues::IsDetach(const onnx::NodeProto& identity) const {
  if (identity.output_size() != 1) return false;
  if (jax_) return HasBaseName(identity.output(0), "stop_out");
  const std::string_view source = TorchSource(identity);
  if (!source.empty()) return source.find("target=torch.ops.aten.detach.default]") != std::string_view::npos;
  return IsNamedDetach(identity.name(), identity.output(0));
}

const std::set<int>* DetachedValues::OperandsOf(const onnx::NodeProto& node) const {
  const auto found = operands_.find(&node);
  return found == operands_.end() ? nullptr : &found->second;
}

void DetachedValues::Search(const NodeList& nodes, const std::set<std::string>& constants) {
  std::set<std::string> known = constants;
  std::map<std::string_view, Source> sources;
  for (const onnx::NodeProto& node : nodes) {
    // A weight may be transposed first.
    const auto is_known = [&](const std::string& input) { return input.empty() || known.contains(input); };
    const bool constant = node.op_type() == "Constant" || (node.input_size() > 0 && std::ranges::all_of(node.input(), is_known));
    if (constant && node.output_size() == 1) known.insert(node.output(0));
    if (const std::string_view line = TorchSource(node); line.find("%detach") != std::string_view::npos)
      sources[line].nodes.push_back(&node);
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) Search(attribute.g().node(), known);
    }
  }
  for (auto& [line, source] : sources) {
    source.arguments = ArgumentsOf(line);
    Resolve(source, known);
  }
}

void DetachedValues::Resolve(const Source& source, const std::set<std::string>& constants) {
  std::set<std::string> made;
  for (const onnx::NodeProto* node : source.nodes) made.insert(node->output().begin(), node->output().end());
  std::vector<std::pair<const onnx::NodeProto*, int>> edges;  // inputs from outside these nodes
  std::set<std::string> read;
  for (const onnx::NodeProto* node : source.nodes) {
    for (int i = 0; i < node->input_size(); ++i) {
      if (node->input(i).empty() || made.contains(node->input(i))) continue;
      edges.emplace_back(node, i);
      read.insert(node->input(i));
    }
  }
  std::set<std::string> gone;
  for (const std::string& name : source.arguments) {
    if (HasBaseName(name, "detach") && !read.contains(name)) gone.insert(name);
  }
  if (gone.empty()) return;
  // Matches inputs to arguments by order if every input that kept its name, or is a weight, is at the position of its argument.
  bool ordered = source.nodes.size() == 1 && edges.size() == source.arguments.size();
  for (size_t i = 0; ordered && i < edges.size(); ++i) {
    const std::string& input = edges[i].first->input(edges[i].second);
    ordered = gone.contains(source.arguments[i]) || input == source.arguments[i] ||
              (constants.contains(input) && !read.contains(source.arguments[i]));
  }
  if (ordered) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (gone.contains(source.arguments[i])) operands_[edges[i].first].insert(edges[i].second);
    }
    return;
  }
  // Otherwise the detached value is the only one that is not named like an argument.
  const std::set<std::string> named(source.arguments.begin(), source.arguments.end());
  std::set<std::string> unnamed;
  for (const std::string& name : read) {
    if (!constants.contains(name) && !named.contains(name)) unnamed.insert(name);
  }
  if (gone.size() == 1 && unnamed.size() == 1) {
    for (const auto& [node, i] : edges) {
      if (unnamed.contains(node->input(i))) operands_[node].insert(i);
    }
    return;
  }
  ambiguous_.push_back(source.nodes.front()->name());
}

bool LosesDetached(const Model& model) {
  const onnx::ModelProto& proto = model.file().proto;
  return proto.producer_name() == "tf2onnx" || IsTracedByTorch(proto);
}

bool IsTracedByTorch(const onnx::ModelProto& proto) {
  if (proto.producer_name() != "pytorch") return false;
  // The older exporter names nodes /layer/Gemm with outputs /layer/Gemm_output_0, and Gemm_7 before that; torch.export names them
  // node_linear_7.
  const auto& nodes = proto.graph().node();
  return std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
    return node.name().starts_with("/") || (node.name().starts_with(node.op_type() + "_") && HasBaseName(node.name(), node.op_type()));
  });
}

// --- in the graph -------------------------------------------------------------------------

void Importer::FindDetached() {
  if (!options_.detach || options_.training_info >= 0) return;
  detached_.emplace(file_.proto);
  const std::vector<std::string>& ambiguous = detached_->ambiguous();
  if (ambiguous.empty()) return;
  result_.warnings.push_back(Counted(std::ssize(ambiguous), "node reads a value", "nodes read values") +
                             " that the module detached, but the file does not say where, so gradients pass: '" + Escaped(ambiguous[0]) +
                             "'; torch.onnx.export(..., optimize=False) keeps it");
}

ValueId Importer::Stopped(ValueId id, const std::string& origin, const std::string& name, bool by_name) {
  const Value& value = emitter().graph().value(id);
  // A scalar constant stays a constant, because some operands must be known.
  const bool number = value.shape.elements() == 1 && emitter().graph().data(id) != nullptr;
  if (!IsFloating(value.dtype) || number) return id;
  Node node{.op = "StopGradient", .domain = std::string(kGradloomDomain), .inputs = {id}};
  node.origin = origin;
  if (by_name) node.attributes.set(std::string(kStoppedByName), int64_t{1});
  return emitter().Emit(std::move(node), {name})[0];
}

ValueId Importer::WithoutGradientOfRow(int64_t row, const onnx::NodeProto& gather, const Scope& scope, ValueId taken) {
  const ValueId ids = TensorOf(gather.input(1), gather, scope);
  const std::string origin = Origin(gather, scope) + "/padding";
  const Graph& graph = emitter().graph();
  // An axis other than the first, or an index that is a scalar, is no lookup of an nn.Embedding.
  if (!IsFloating(graph.value(taken).dtype) || graph.value(taken).shape.rank() != graph.value(ids).shape.rank() + 1) return taken;
  const ValueId number = emitter().AddConstant(origin + "/row", Converted(Tensor::Scalar(row).view(), graph.value(ids).dtype));
  const ValueId padding = EmitOp("Unsqueeze", {EmitOp("Equal", {ids, number}, {}, origin, ""), Ints(origin, {-1})}, {}, origin, "");
  Node node{.op = "MaskGradient", .domain = std::string(kGradloomDomain), .inputs = {taken, padding}};
  node.origin = origin;
  return emitter().Emit(std::move(node), {origin})[0];
}

Binding Importer::StoppedByName(const Binding& binding, const std::string& name) {
  const auto stopped = [&](ValueId id, const std::string& called) { return Stopped(id, called, called, /*by_name=*/true); };
  Binding made = binding;
  if (binding.tensor != kNoValue) made.tensor = stopped(binding.tensor, name + "/detached");
  if (binding.sequence != nullptr) {
    std::vector<ValueId> elements;
    for (ValueId id : *binding.sequence) elements.push_back(stopped(id, name + "/detached/" + std::to_string(elements.size())));
    made.sequence = std::make_shared<const std::vector<ValueId>>(std::move(elements));
  }
  return made;
}

void Importer::RunWithStops(const onnx::NodeProto& proto, Scope& scope) {
  std::vector<std::string> names;
  for (const std::string& output : proto.output()) names.push_back(scope.path + output);
  if (!proto.name().empty()) names.push_back(scope.path + proto.name());
  // While the node runs, the names of its operands are bound to the stopped values.
  std::vector<std::pair<std::string, std::optional<Binding>>> before;
  for (const std::string& input : std::set<std::string>(proto.input().begin(), proto.input().end())) {
    const Scope* home = &scope;
    while (home != nullptr && !home->names.contains(input)) home = home->outer;
    if (home == nullptr || !stops_.AtReader(home->path + input, names)) continue;
    const Binding stopped = StoppedByName(*Find(input, scope), names.back() + "/" + input);
    const auto here = scope.names.find(input);
    before.emplace_back(input, here == scope.names.end() ? std::nullopt : std::optional(here->second));
    scope.names.insert_or_assign(input, stopped);
  }
  RunAsWritten(proto, scope);
  for (auto& [name, binding] : before) {
    const bool is_made = std::find(proto.output().begin(), proto.output().end(), name) != proto.output().end();
    if (is_made) continue;  // a name that the file reuses
    if (binding) {
      scope.names.insert_or_assign(name, *binding);
    } else {
      scope.names.erase(name);
    }
  }
  for (const std::string& output : proto.output()) {
    if (output.empty() || !stops_.AtValue(scope.path + output)) continue;
    // Old BatchNormalization nodes list outputs that are no longer made.
    const auto made = scope.names.find(output);
    if (made != scope.names.end()) made->second = StoppedByName(made->second, scope.path + output);
  }
}

}  // namespace gradloom

// ONNX's training standard: training_info, whose algorithm is a graph that follows the model's, and the operator Gradient.
#include "compiler/onnx/training_info.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

std::string WhereOf(int info) { return "training_info[" + std::to_string(info) + "]"; }

std::vector<std::string> Names(const onnx::AttributeProto* attribute) {
  if (attribute == nullptr) return {};
  return {attribute->strings().begin(), attribute->strings().end()};
}

}  // namespace

const onnx::TrainingInfoProto* TrainingInfoOf(const ModelFile& file, const ImportOptions& options) {
  if (options.training_info < 0) return nullptr;
  const int count = file.proto.training_info_size();
  if (options.training_info < count) return &file.proto.training_info(options.training_info);
  throw Error(ErrorCode::kConfig,
              "the model has " + (count == 0 ? std::string("no training_info") : std::to_string(count) + " training_info") +
                  ", so it has no algorithm " + std::to_string(options.training_info),
              Escaped(file.path, 4096), "--loss NAME trains any model");
}

std::vector<const onnx::GraphProto*> GraphsOf(const ModelFile& file, const ImportOptions& options) {
  const onnx::TrainingInfoProto* info = TrainingInfoOf(file, options);
  if (info == nullptr) return {&file.proto.graph()};
  if (options.initialization) return {&info->initialization()};
  if (!info->has_algorithm()) throw Error(ErrorCode::kGraph, "the training_info has no algorithm", WhereOf(options.training_info));
  return {&file.proto.graph(), &info->algorithm()};
}

void Importer::FindUpdated(const std::vector<const onnx::GraphProto*>& graphs) {
  const onnx::TrainingInfoProto* info = TrainingInfoOf(file_, options_);
  if (info == nullptr || options_.initialization) return;
  std::set<std::string> names;
  for (const auto& binding : info->update_binding()) {
    if (names.insert(binding.key()).second) continue;
    throw Error(ErrorCode::kGraph, "'" + Escaped(binding.key()) + "' is updated twice", WhereOf(options_.training_info));
  }
  for (const onnx::GraphProto* graph : graphs) {
    for (const auto& tensor : graph->initializer()) {
      if (names.contains(tensor.name())) updated_.insert(&tensor);
    }
    for (const auto& tensor : graph->sparse_initializer()) {
      if (names.contains(tensor.values().name())) updated_.insert(&tensor);
    }
  }
  if (updated_.size() != names.size())
    throw Error(ErrorCode::kGraph, "an update binding must name an initializer", WhereOf(options_.training_info));
}

void Importer::AddBindings(const Scope& scope) {
  const onnx::TrainingInfoProto* info = TrainingInfoOf(file_, options_);
  if (info == nullptr) return;
  const auto output = [&](const onnx::StringStringEntryProto& binding) {
    const Binding* made = Find(binding.value(), scope);
    if (made != nullptr && made->tensor != kNoValue) return made->tensor;
    throw Error(ErrorCode::kGraph,
                "'" + Escaped(binding.key()) + "' is bound to '" + Escaped(binding.value()) + "', which no node produces",
                WhereOf(options_.training_info));
  };
  if (options_.initialization) {
    for (const auto& binding : info->initialization_binding()) result_.initial.emplace_back(binding.key(), output(binding));
    return;
  }
  Graph& graph = *result_.graph;
  for (const auto& binding : info->update_binding()) {
    const ValueId state = Find(binding.key(), scope)->tensor, next = output(binding);
    if (graph.type(state) != graph.type(next)) {
      throw Error(
          ErrorCode::kType,
          "'" + Escaped(binding.key()) + "' is " + graph.type(state).ToString() + ", but its update is " + graph.type(next).ToString(),
          WhereOf(options_.training_info));
    }
    if (!emitter().extents().Of(next).empty()) {
      throw Error(ErrorCode::kUnsupported, "'" + Escaped(binding.key()) + "' is updated with a tensor of data-dependent shape",
                  WhereOf(options_.training_info));
    }
    // A separate value, because others may read the update too.
    Node same{.op = "Identity", .inputs = {next}};
    same.origin = binding.key() + "/update";
    result_.updates.emplace_back(state, emitter().Append(std::move(same), {binding.key() + "/update"}, {graph.type(next)})[0]);
  }
  if (result_.loss != kNoValue) return;
  throw Error(ErrorCode::kUnsupported, "the algorithm has no Gradient node, which names the loss", WhereOf(options_.training_info),
              "--loss NAME trains with a loss and an optimizer of Gradloom's");
}

// Differentiates the nodes between `xs` and `zs`, which are taken as independent, and `y`, at the values of its inputs.
void Importer::RunGradient(const onnx::NodeProto& proto, Scope& scope) {
  const std::vector<std::string> xs = Names(FindAttribute(proto, "xs", scope)), zs = Names(FindAttribute(proto, "zs", scope));
  const onnx::AttributeProto* target = FindAttribute(proto, "y", scope);
  Node node{.op = "Derivative", .domain = std::string(kGradloomDomain)};
  node.origin = Origin(proto, scope);
  if (target == nullptr || xs.empty())
    throw Error(ErrorCode::kAttr, "operator 'Gradient' needs the attributes 'xs' and 'y'", Describe(node));
  if (static_cast<size_t>(proto.input_size()) != xs.size() + zs.size() || static_cast<size_t>(proto.output_size()) > xs.size()) {
    throw Error(ErrorCode::kArity,
                "Gradient with " + std::to_string(xs.size()) + " xs and " + std::to_string(zs.size()) + " zs has " +
                    std::to_string(proto.input_size()) + " inputs and " + std::to_string(proto.output_size()) + " outputs",
                Describe(node));
  }
  const ValueId y = NeededTensorOf(target->s(), proto, scope);
  node.inputs.push_back(y);
  for (const auto* names : {&xs, &zs}) {
    for (const std::string& name : *names) node.inputs.push_back(NeededTensorOf(name, proto, scope));
  }
  for (const std::string& name : proto.input()) node.inputs.push_back(NeededTensorOf(name, proto, scope));
  node.attributes.set("wanted", static_cast<int64_t>(xs.size()));
  if (result_.loss == kNoValue && options_.training_info >= 0) result_.loss = y;
  std::vector<std::string> names;
  for (const std::string& output : proto.output()) names.push_back(output.empty() ? "" : NameOf(output, scope));
  const std::vector<ValueId> made = emitter().Emit(std::move(node), names);
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] != kNoValue) scope.names.insert_or_assign(proto.output(static_cast<int>(i)), Binding{made[i], nullptr});
  }
}

bool Model::has_algorithm() const {
  if (file_->proto.training_info().empty() || file_->proto.training_info(0).update_binding().empty()) return false;
  const auto& nodes = file_->proto.training_info(0).algorithm().node();
  return std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) { return node.op_type() == "Gradient"; });
}

bool Model::has_initialization(int info) const { return file_->proto.training_info(info).has_initialization(); }

std::vector<std::string> Model::updated_initializers(int info) const {
  ImportOptions options;
  options.training_info = info;
  std::set<std::string> known;
  for (const auto& tensor : file_->proto.graph().initializer()) {
    if (const auto dtype = DTypeFromProto(tensor.data_type()); dtype && IsFloating(*dtype)) known.insert(tensor.name());
  }
  std::vector<std::string> names;
  for (const auto& binding : TrainingInfoOf(*file_, options)->update_binding()) {
    if (known.contains(binding.key())) names.push_back(binding.key());
  }
  return names;
}

}  // namespace gradloom

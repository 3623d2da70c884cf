#include "compiler/onnx/module_parameters.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <string_view>

namespace gradloom {
namespace {

std::string_view NoteOf(const auto& notes, std::string_view key) {
  for (const onnx::StringStringEntryProto& note : notes) {
    if (note.key() == key) return note.value();
  }
  return {};
}

using Names = std::set<std::string, std::less<>>;

// The names in a list as Python writes it: ['l.weight', 'mask']
Names NamesIn(std::string_view list) {
  Names names;
  for (size_t at = list.find('\''); at != std::string_view::npos; at = list.find('\'', at + 1)) {
    const size_t end = std::min(list.find('\'', at + 1), list.size());
    names.emplace(list.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

// What an initializer was computed from, where the exporter computed it.
Names SourcesOf(const onnx::ValueInfoProto& info) { return NamesIn(NoteOf(info.metadata_props(), "pkg.onnxscript.optimizer.folded_from")); }

// Whether the graph has all parameters that the module had, by themselves or in what was computed from them. Of tensors with the same
// elements the default exporter keeps one: a running mean of zeros may be a bias as well.
bool HasAllParameters(const onnx::GraphProto& graph) {
  Names names;
  for (const onnx::TensorProto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    if (names.contains(info.name())) names.merge(SourcesOf(info));
  }
  // Lines such as p_l_weight: PARAMETER target='l.weight'
  const std::string_view signature = NoteOf(graph.metadata_props(), "pkg.torch.export.ExportedProgram.graph_signature");
  constexpr std::string_view kTarget = ": PARAMETER target='";
  size_t found = 0;
  for (size_t at = signature.find(kTarget); at != std::string_view::npos; at = signature.find(kTarget, at), ++found) {
    at += kTarget.size();
    if (!names.contains(signature.substr(at, signature.find('\'', at) - at))) return false;
  }
  return found > 0;
}

// Whether no parameter has these elements by chance.
bool Varies(const Tensor& data) {
  const auto* bytes = static_cast<const std::byte*>(data.data());
  const auto size = static_cast<size_t>(DTypeBytes(data.dtype()));
  for (int64_t i = 1; i < data.elements(); ++i) {
    if (std::memcmp(bytes, bytes + static_cast<size_t>(i) * size, size) != 0) return true;
  }
  return false;
}

}  // namespace

std::map<std::string, bool> ModuleParameters(const ModelFile& file) {
  const onnx::GraphProto& graph = file.proto.graph();
  std::map<std::string, bool> kinds;
  Names fixed;  // buffers, and tensors in the code
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    const std::string_view kind = NoteOf(info.metadata_props(), "pkg.torch.export.graph_signature.InputSpec.kind");
    if (kind == "PARAMETER") kinds.emplace(info.name(), true);
    if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") fixed.insert(info.name());
  }
  if (fixed.empty()) return kinds;
  const bool sure = HasAllParameters(graph);
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (!fixed.contains(tensor.name())) continue;
    const auto found = file.tensors.find(&tensor);
    if (sure || (found != file.tensors.end() && Varies(found->second.data))) kinds.emplace(tensor.name(), false);
  }
  return kinds;
}

}  // namespace gradloom

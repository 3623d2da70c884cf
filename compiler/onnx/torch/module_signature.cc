#include "compiler/onnx/torch/module_signature.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gradloom {
namespace {

std::string_view NoteOf(const auto& notes, std::string_view key) {
  for (const onnx::StringStringEntryProto& note : notes) {
    if (note.key() == key) return note.value();
  }
  return {};
}

// Returns the names in a list in Python's notation: ['l.weight', 'mask']
NameSet NamesIn(std::string_view list) {
  NameSet names;
  for (size_t at = list.find('\''); at != std::string_view::npos; at = list.find('\'', at + 1)) {
    const size_t end = std::min(list.find('\'', at + 1), list.size());
    names.emplace(list.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

}  // namespace

ModuleSignature::ModuleSignature(const onnx::GraphProto& graph) {
  const std::string_view text = NoteOf(graph.metadata_props(), "pkg.torch.export.ExportedProgram.graph_signature");
  const std::pair<std::string_view, NameSet*> kinds[] = {
      {": PARAMETER target='", &parameters}, {": BUFFER target='", &others}, {": CONSTANT_TENSOR target='", &others}};
  // By lines, so that the time does not grow with the square of a text that has none.
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
    begin += line.size() + 1;
    if (constexpr std::string_view kOutput = ": USER_OUTPUT"; line.ends_with(kOutput))
      outputs.emplace_back(line.substr(0, line.size() - kOutput.size()));
    if (constexpr std::string_view kMutation = ": BUFFER_MUTATION target='"; line.find(kMutation) != std::string_view::npos) {
      const std::string_view name = line.substr(line.find(kMutation) + kMutation.size());
      changed.emplace(name.substr(0, name.find('\'')));
    }
    for (const auto& [mark, names] : kinds) {
      const size_t at = line.find(mark);
      if (at == std::string_view::npos) continue;
      const std::string_view name = line.substr(at + mark.size());
      const std::string target(name.substr(0, name.find('\'')));
      names->insert(target);
      if (arguments.emplace(line.substr(0, at), target).second) ordered.push_back(target);
    }
  }
}

NameSet SourcesOf(const onnx::ValueInfoProto& info) { return NamesIn(NoteOf(info.metadata_props(), kFoldedFrom)); }

}  // namespace gradloom

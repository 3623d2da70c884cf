#include "compiler/onnx/module_signature.h"

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
  for (const auto& [mark, names] : {std::pair{": PARAMETER target='", &parameters}, std::pair{": BUFFER target='", &others},
                                    std::pair{": CONSTANT_TENSOR target='", &others}}) {
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at)) {
      const size_t line = text.find_last_of('\n', at) + 1;  // 0 for the first one
      const std::string_view argument = text.substr(line, at - line);
      at += std::string_view(mark).size();
      const std::string_view name = text.substr(at, text.find('\'', at) - at);
      names->emplace(name);
      arguments.emplace(argument, name);
    }
  }
}

NameSet SourcesOf(const onnx::ValueInfoProto& info) { return NamesIn(NoteOf(info.metadata_props(), kFoldedFrom)); }

}  // namespace gradloom

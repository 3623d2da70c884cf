// Import of a graph that reads what another one made, of which the data of a step decides extents.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// Of inputs, by name and axis: what tells an extent from others. An axis that has the symbol of one of these has the same extent.
using CountedInputs = std::map<std::string, std::map<int, int64_t>>;

struct CountedImport {
  ImportedGraph imported;
  std::map<ValueId, int64_t> counts;  // further inputs of the graph, int64 scalars: how many elements along such an axis count
};

// As Import; the shapes of counted inputs have the most that there can be.
CountedImport ImportCounted(const Model& model, const ImportOptions& options, const CountedInputs& counted);

}  // namespace gradloom

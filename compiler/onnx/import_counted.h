// Import of a graph that reads the outputs of another one, whose extents depend on the data of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// For inputs, by name and axis: an identifier of the extent. An axis with the same symbol as one of these has the same extent.
using CountedInputs = std::map<std::string, std::map<int, int64_t>>;

struct CountedImport {
  ImportedGraph imported;
  std::map<ValueId, int64_t> counts;  // further inputs of the graph, int64 scalars: the number of valid elements along such an axis
};

// Like Import. The shapes of the counted inputs contain the largest possible extents.
CountedImport ImportCounted(const Model& model, const ImportOptions& options, const CountedInputs& counted);

}  // namespace gradloom

// From a model at a batch to the division of that batch over copies of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "compiler/compile.h"
#include "compiler/passes/replicate_data.h"

namespace gradloom {

// A model at a batch, with what the passes know of it.
struct ImportedBatch {
  ImportedGraph imported;
  PassContext context;
};

// A batch that copies of the model share.
struct DividedBatch {
  std::unique_ptr<ImportedBatch> whole, other;
  std::unique_ptr<Replication> replication;
  std::map<int64_t, std::unique_ptr<Graph>> graphs;  // by the samples that a copy has
};

// Imports the model at so many samples, read in this way.
using ImportAt = std::function<std::unique_ptr<ImportedBatch>(int64_t batch, const ImportOptions& reading)>;

// What depends on the batch shows beside another size. Runs the passes before the division on both. Throws Error(kUnsupported) naming
// what mixes samples.
DividedBatch DivideGraph(const ImportAt& import_at, const CompileOptions& options, int64_t batch, int copies);

}  // namespace gradloom

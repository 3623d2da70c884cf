// Divides the batch of a model over copies of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "compiler/compile.h"
#include "compiler/passes/devices/replicate_data.h"

namespace gradloom {

// A model imported at a batch size, with the context of its passes.
struct ImportedBatch {
  ImportedGraph imported;
  PassContext context;
};

// A batch that is divided over copies of the model.
struct DividedBatch {
  std::unique_ptr<ImportedBatch> whole, other;
  std::unique_ptr<Replication> replication;
  std::map<int64_t, std::unique_ptr<Graph>> graphs;  // by the number of samples of a copy
};

// Imports the model at this number of samples, with these import options.
using ImportAt = std::function<std::unique_ptr<ImportedBatch>(int64_t batch, const ImportOptions& reading)>;

// Compares the model with another batch size to see what depends on the batch. Runs the passes before the division on both. Throws
// RelatedSamples(kUnsupported), naming the node that relates samples, and Error(kUnsupported). `inner`: Shard::inner of feeds where it is
// known, by name.
DividedBatch DivideGraph(const ImportAt& import_at, const CompileOptions& options, int64_t batch, int copies,
                         const std::map<std::string, int64_t>& inner);

}  // namespace gradloom

// Symbolic extents of a model's inputs that the arrays of its data tell: the length of sequences.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/onnx/import.h"
#include "runtime/data/training_data.h"

namespace gradloom {

// The extents of symbolic dimensions other than the batch, by name, as the arrays of a .npz file have them (the first one that `path`
// means), and as `options` has those that no array tells. Empty for other data, if the arrays do not fit the model, and if the model
// declares its batch as a number. Of the arrays, only the headers are read. `columns`: as in DataOptions.
std::map<std::string, int64_t> ExtentsOfData(const Model& model, const ImportOptions& options, const std::string& path,
                                             const std::string& format, const ColumnMap& columns);

// "seq=40": extents for a message.
std::string ExtentsText(const std::map<std::string, int64_t>& extents);

// Import. If the model cannot have these extents of its data, the error says where they come from.
ImportedGraph ImportAt(const Model& model, const ImportOptions& options, const std::map<std::string, int64_t>& of_data,
                       const std::string& data);

// Those of them for which `options` has no number.
std::map<std::string, int64_t> MissingExtents(const Model& model, const ImportOptions& options, const std::string& path,
                                              const std::string& format, const ColumnMap& columns);

}  // namespace gradloom

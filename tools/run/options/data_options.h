// The data of a configuration.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/data/training_data.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Sets which rows stay in their files: for one of several processes that each read their share of the rows of a batch, or of the batches,
// all that may; for others those that do not fit into the memory.
void ChooseOnDemand(const Configuration& configuration, DataOptions& options);

// Without targets and classes, which depend on the model. Throws Error(kConfig) if there is no training data.
DataOptions DataOptionsOf(const Configuration& configuration);

// The feeds that are not inputs of the model.
std::set<std::string> TargetsAmong(const std::vector<Feed>& feeds, const Graph& model);

// Sets what the options say about targets: which feeds are targets, and the valid classes and numbers of the losses' targets.
void SetTargets(const std::vector<Feed>& feeds, const Recipe& recipe, const Graph& graph, DataOptions& options);

// What a run has recorded of its data.
struct RecordedData {
  std::string json, path;  // of data.json; empty for a plan alone
  ColumnMap columns;
  std::map<std::string, std::vector<Transform>> fitted;
  TrainingNames names;
};

// The evaluation data of a run, as in its training; `targets`: the options that SetTargets sets. Throws Error(kConfig) if there was none,
// Error(kData) if it was held back from training data that has changed since.
Dataset EvaluationDataOf(const Configuration& configuration, const RecordedData& recorded, const std::vector<Feed>& feeds,
                         const DataOptions& targets, std::vector<std::string>& notes);

}  // namespace gradloom

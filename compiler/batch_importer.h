// From a model to the graph that the passes of an entry begin with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/divide_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/choose_trainable.h"

namespace gradloom {

// The model at request.batch samples (0: as the file says) and request.shapes, read in this way, with all weights as constants. `rules` and
// `plan` are those of the context, and outlive it, as the recipe does. Throws what Import throws.
ImportedBatch ReadBatch(const Model& model, const Recipe& recipe, const EntryRequest& request, ImportOptions reading,
                        const TypeRules& rules, Plan& plan);

// For the entries of one plan.
class BatchImporter {
 public:
  // All outlive the importer and what it imports. `plan`: what the entries before have made. `report`: what is trained, by the first
  // import.
  BatchImporter(const Model& model, const CompileOptions& options, Plan& plan, CompileReport& report)
      : model_(model), options_(options), plan_(plan), report_(report) {}

  // What ReadBatch gives, with the parameters chosen and all state as it is before the first step. An update reads accumulated gradients:
  // of the model itself nothing runs. Throws what Import throws, and Error(kShape, kType) where weights do not fit.
  std::unique_ptr<ImportedBatch> Import(const EntryRequest& request, const ImportOptions& reading);

  const OnnxTypeRules& rules() const { return rules_; }

 private:
  void ReadKeptState(Graph& graph) const;
  void SetInitial(Graph& graph);
  TrainableChoice ChooseTrained(ImportedGraph& imported) const;
  void ReportTrained(const ImportedGraph& imported, const TrainableChoice& choice) const;
  void CheckCopies(const ImportedGraph& imported, const TrainableChoice& choice) const;

  const Model& model_;
  const CompileOptions& options_;
  Plan& plan_;
  CompileReport& report_;
  OnnxTypeRules rules_;
  std::vector<std::pair<std::string, Tensor>> initial_;  // by the file's own initialization
};

}  // namespace gradloom

// Imports a model as the graph with which the passes of an entry begin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/divide_graph.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/update/choose_trainable.h"

namespace gradloom {

// Imports the model at request.batch samples (0: as in the file) and request.shapes, with the import options `reading`, and all weights as
// constants. The context keeps references to `rules`, `plan` and the recipe, which must outlive it. Throws what Import throws.
ImportedBatch ReadBatch(const Model& model, const Recipe& recipe, const EntryRequest& request, ImportOptions reading,
                        const TypeRules& rules, Plan& plan);

// Imports the model for each entry of one plan.
class BatchImporter {
 public:
  // All arguments must outlive the importer and what it imports. `plan`: the result of the previous entries. `report`: the first import
  // writes what is trained.
  BatchImporter(const Model& model, const CompileOptions& options, Plan& plan, CompileReport& report)
      : model_(model), options_(options), plan_(plan), report_(report) {}

  // The result of ReadBatch, with the parameters chosen and all state as before the first step. An update reads accumulated gradients and
  // runs nothing of the model itself. Throws what Import throws, and Error(kShape, kType) if weights do not fit.
  std::unique_ptr<ImportedBatch> Import(const EntryRequest& request, const ImportOptions& reading);

  const OnnxTypeRules& rules() const { return rules_; }

  // The matrices of the file that are trained as one with another, in the last import.
  const std::vector<TiedTensor>& tied() const { return tied_; }

 private:
  void ReadKeptState(Graph& graph) const;
  void ReadAverages(Graph& graph) const;
  void SetInitial(Graph& graph);
  void GiveSurrogates(GraphBuilder& builder, ImportedGraph& imported) const;
  // `read`: the graph before the choice, which is changed.
  void WarnOfSteps(Graph& read, const std::vector<std::string>& steps, const TrainableChoice& choice, ImportedGraph& imported) const;
  TrainableOptions OptionsOf(const ImportedGraph& imported) const;
  TrainableChoice ChooseTrained(ImportedGraph& imported) const;
  void Tie(ImportedGraph& imported, TrainableChoice& choice);
  // `vectors`: StoredVectors of the trained ones.
  void ReportTrained(const ImportedGraph& imported, const TrainableChoice& choice, const std::set<ValueId>& vectors) const;
  void CheckCopies(const ImportedGraph& imported, const TrainableChoice& choice) const;

  const Model& model_;
  const CompileOptions& options_;
  Plan& plan_;
  CompileReport& report_;
  OnnxTypeRules rules_;
  std::optional<std::vector<TiedTensor>> copies_;  // Model::transposed_copies
  std::vector<TiedTensor> tied_;
  std::vector<std::pair<std::string, Tensor>> initial_;  // from the file's own initialization
};

}  // namespace gradloom

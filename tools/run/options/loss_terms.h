// The losses of a configuration.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/loss/add_loss.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The configured losses, which are summed. If there are none, one: that of the model's own training algorithm, unless options of an
// optimizer are set, or else a guess from the graph's outputs. Notes say what was chosen. A loss is written as "cross_entropy(logits,
// label, label_smoothing=0.1)*0.5", with optional operands, or as an ONNX file, "my_loss.onnx(prediction=logits)*0.5", which is loaded.
// Throws Error(kConfig) with a suggestion, and what Model::Load throws.
std::vector<LossTerm> LossTermsOf(const Configuration& configuration, const Model& model, const Graph& graph,
                                  std::vector<std::string>& notes);

// For each of the terms of loss.name, which come first among the losses: class weights that only the training data makes numbers
// (AreWeightsByData), as they are written; "": there are none. These terms have no class_weight until WeighClasses gives them one.
std::vector<std::string> WeightsByDataOf(const Configuration& configuration);

// The output of the graph that a term reads: the first one if it names none.
const Value& OutputOf(const LossTerm& term, const Graph& graph);

// The ONNX files among the losses.
std::vector<std::string> LossFilesOf(const Configuration& configuration);

}  // namespace gradloom

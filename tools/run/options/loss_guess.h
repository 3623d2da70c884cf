// Guesses the loss from the last operator before an output.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/loss/add_loss.h"

namespace gradloom {

// A loss of the first floating-point output to which tensors of the model lead, and `target`: cross_entropy for scores of several classes,
// cross_entropy_of_probabilities for a softmax and other probabilities of classes, bce for a sigmoid, mse otherwise; for a single number,
// that number without a target. A line of `notes` tells which. Throws Error(kGraph) for a graph without outputs.
LossTerm GuessLoss(const Graph& graph, std::vector<std::string>& notes);

// Adds a warning for each loss that expects scores, probabilities or log-probabilities and gets another kind of these: it would apply a
// function a second time, or not at all, which trains badly.
void WarnOfUnfitOutputs(const std::vector<LossTerm>& losses, const Graph& graph, std::vector<std::string>& notes);

}  // namespace gradloom

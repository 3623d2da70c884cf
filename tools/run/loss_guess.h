// What the last operator before an output says of the loss that suits it.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/add_loss.h"

namespace gradloom {

// A loss of the first output and `target`: cross_entropy of scores of several classes, cross_entropy_of_probabilities of their softmax, bce
// of a sigmoid, mse of all else; a line of `notes` says which. Throws Error(kGraph) for a graph without outputs.
LossTerm GuessLoss(const Graph& graph, std::vector<std::string>& notes);

// A warning for each term that takes scores and gets probabilities: it makes others of them, which are never near 1, and trains badly.
void WarnOfSecondFunction(const std::vector<LossTerm>& losses, const Graph& graph, std::vector<std::string>& notes);

}  // namespace gradloom

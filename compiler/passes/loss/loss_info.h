// Describes the losses of a graph for metrics.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/passes/loss/add_loss.h"
#include "runtime/plan/loss_info.h"

namespace gradloom {

// Whether the target has class numbers.
bool TargetIsClass(const LossTerm& term);

// The terms that compare an output with a target, and the SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss nodes of a model, loss
// graph or training algorithm that computes its loss itself. `graph` has the model, whose outputs it still has, and its loss, `loss`.
// `names`: of fed and fetched values that have other names in the graph.
std::vector<LossInfo> LossInfosOf(const Graph& graph, std::span<const LossTerm> terms, ValueId loss,
                                  const std::map<ValueId, std::string>& names);

}  // namespace gradloom

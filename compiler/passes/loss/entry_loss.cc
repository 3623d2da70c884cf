#include "compiler/passes/loss/entry_loss.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/loss/add_loss.h"
#include "compiler/passes/loss/loss_info.h"
#include "runtime/base/error.h"

namespace gradloom {

void BindFileUpdates(PassContext& c) {
  std::map<ValueId, ValueId> next_of;
  for (const auto& [state, next] : c.file_updates) next_of.emplace(state, next);
  // A statistic that the algorithm updates is not also updated by its node.
  for (const Value& value : c.graph.values()) {
    if (next_of.contains(value.next_of)) c.graph.value(value.id).next_of = kNoValue;
  }
  for (const auto& [state, next] : next_of) c.graph.value(next).next_of = state;
}

namespace {

// Uses the loss of the file's own algorithm.
void UseFileLoss(PassContext& c) {
  c.loss = c.file_loss;
  if (c.graph.value(c.loss).shape.elements() != 1) {
    throw Error(ErrorCode::kShape, "the file's algorithm differentiates '" + Escaped(c.graph.value(c.loss).name) + "' " +
                                       c.graph.type(c.loss).ToString() + ", which is not a scalar and cannot be the loss");
  }
  if (Trains(c.kind)) BindFileUpdates(c);
}

// `terms`: of a loss that has several and that is not computed as the file says.
void NameTerms(PassContext& c, const std::vector<ValueId>& terms) {
  if (terms.empty()) return;
  std::vector<std::string> outputs;
  for (ValueId id : c.graph.outputs) {
    const auto named = c.fetch_names.find(id);
    outputs.push_back(named != c.fetch_names.end() ? named->second : c.graph.value(id).name);
  }
  c.plan.loss_terms = LossTermFetches(c.recipe.losses, std::move(outputs));
  for (size_t i = 0; i < terms.size(); ++i) c.fetch_names.emplace(terms[i], c.plan.loss_terms[i]);
}

}  // namespace

void RunAddLoss(PassContext& c) {
  if (c.kind == EntryKind::kPredict || c.kind == EntryKind::kUpdate || c.recipe.losses.empty()) return;
  c.loss_nodes = LossNodes(c.graph.next_node_id());
  std::vector<ValueId> terms;
  if (c.recipe.UsesFileAlgorithm()) {
    UseFileLoss(c);
  } else {
    GraphBuilder builder(c.graph, c.rules);
    LossOperands operands(builder, c.fetch_names, c.extents);
    AddedLoss added = AddLoss(builder, c.recipe.losses, c.batch, operands);
    c.loss = added.sum;
    terms = std::move(added.terms);
    c.feed_names = operands.feed_names();
  }
  NameTerms(c, terms);
  std::map<ValueId, std::string> names = c.fetch_names;
  names.insert(c.feed_names.begin(), c.feed_names.end());
  c.plan.losses = LossInfosOf(c.graph, c.recipe.losses, c.loss, names);
  for (Node& node : c.graph.nodes) {
    if (c.recipe.gather_to >= 0 && c.recipe.tail.empty() && c.loss_nodes.contains(node.id)) node.device = kTail;
  }
  if (Trains(c.kind) && !c.recipe.fetch_outputs) c.graph.outputs.clear();
  c.graph.outputs.insert(c.graph.outputs.begin(), terms.begin(), terms.end());
  c.graph.outputs.insert(c.graph.outputs.begin(), c.loss);
  c.fetch_names.emplace(c.loss, "loss");
}

}  // namespace gradloom

#include "compiler/passes/update/entry_updates.h"

#include "compiler/passes/update/accumulate.h"
#include "compiler/passes/update/add_optimizer.h"

namespace gradloom {
namespace {

bool KeepsOwnParts(const PassContext& c) { return KeepsParts(c.recipe, CopiesOfModel(c)); }

// The factor of a batch's gradient in the accumulated one. A batch that is not divided is processed by every replica.
double FactorOfBatch(const PassContext& c) {
  const int64_t alike = KeepsOwnParts(c) && !c.divided ? CopiesOfModel(c) : 1;
  return static_cast<double>(DividesByWeight(c.recipe) ? WeightOfBatch(c.recipe, c.samples) : 1) / static_cast<double>(alike);
}

}  // namespace

int CopiesOfModel(const PassContext& c) { return c.recipe.devices / (c.stages == nullptr ? 1 : c.stages->count); }

void RunAddOptimizer(PassContext& c) {
  if (IsForwardOnly(c.kind) || c.recipe.UsesFileAlgorithm()) return;
  GraphBuilder builder(c.graph, c.rules);
  builder.set_phase(Phase::kUpdate);
  const bool counts = c.recipe.accumulate > 1 && c.kind != EntryKind::kStep;
  const int64_t weight = WeightOfBatch(c.recipe, c.samples);
  if (c.kind == EntryKind::kAccumulate) {
    if (counts) AddWeight(builder, weight);
    return AddAccumulation(builder, c.gradients, FactorOfBatch(c), KeepsOwnParts(c));
  }
  if (c.kind == EntryKind::kLastBatch) c.gradients = CompleteAccumulation(builder, c.gradients, FactorOfBatch(c), KeepsOwnParts(c));
  if (c.kind == EntryKind::kUpdate) c.gradients = TakeAccumulated(builder, c.parameters, c.plan, KeepsOwnParts(c));
  const ValueId total = counts ? TakeWeight(builder, c.recipe, c.kind == EntryKind::kLastBatch ? weight : 0) : kNoValue;
  const ValueId norm = AddOptimizer(builder, c.recipe.optimizer, c.gradients, c.recipe.loss_scale, c.vectors, total);
  if (norm == kNoValue) return;
  c.graph.outputs.push_back(norm);
  c.fetch_names.emplace(norm, "grad_norm");
}

}  // namespace gradloom

#include "compiler/onnx/batch/batch_axis.h"

#include <utility>

#include "compiler/onnx/batch/batch_values.h"

namespace gradloom {

BagNumbers* BatchObserver::NextLoop() {
  if (mode_ == Mode::kRecord) return &found_.loops.emplace_back();
  if (loop_ >= found_.loops.size()) return nullptr;
  BagNumbers& loop = found_.loops[loop_++];
  return loop.bags ? &loop : nullptr;
}

void BatchObserver::Join(const Node& node, const std::vector<ValueType>& then_branch, const std::vector<ValueType>& else_branch) {
  const bool alike = then_branch == else_branch;
  if (mode_ == Mode::kRecord) return found_.alike.push_back(alike);
  const size_t at = join_++;
  if (alike || at >= found_.alike.size() || !found_.alike[at]) return;
  for (size_t i = 0; i < then_branch.size() && i < else_branch.size(); ++i) {
    if (then_branch[i] == else_branch[i]) continue;
    throw BatchRefusal(found_.declared, Describe(node),
                       "output " + std::to_string(i) + " depends on the batch size in one branch and not in the other");
  }
}

Error BatchObserver::InBody(const Error& error) const {
  if (mode_ == Mode::kRecord || error.code() != ErrorCode::kShape || IsBatchRefusal(error)) return error;
  // Omits the operands, whose batch size is not one that the user gave.
  return BatchRefusal(found_.declared, error.where().substr(0, error.where().find("  inputs ")),
                      error.message() + " (in a branch or a loop)");
}

void BatchObserver::Before(Emitter& emitter, Node& node) {
  if (emitting()) return;
  if (mode_ == Mode::kRecord) return Record(emitter, node);
  const bool recorded = index_ < found_.reference.size();
  if (recorded) AsReference(emitter, node, found_.reference[index_]);
  const bool known = recorded && found_.reference[index_].op == node.op && found_.reference[index_].inputs.size() == node.inputs.size();
  if (mode_ == Mode::kProve) {
    // A loop or a branch depends on the batch size: from here on nodes cannot be compared, and nothing is changed.
    lost_ = lost_ || !known;
    if (!lost_) prover_.Before(emitter, node, index_);
    return;
  }
  const auto changes = found_.changes.find(index_);
  if (changes == found_.changes.end()) return;
  if (!known) throw BatchRefusal(found_.declared, Describe(node), "the graph has different nodes at this batch size");
  for (const BatchChange& change : changes->second) application_.Apply(emitter, node, change);
}

void BatchObserver::Record(Emitter& emitter, const Node& node) {
  Emitted emitted{node.op, {}, {}, {}};
  for (ValueId id : node.inputs) {
    emitted.inputs.push_back(id == kNoValue ? Shape{} : emitter.graph().value(id).shape);
    emitted.numbers.push_back(NumbersOf(emitter, id));
  }
  found_.reference.push_back(std::move(emitted));
}

// A node that took all elements in order at the declared batch size was turned into a Reshape there (Emitter::ReshapeInOrder), and becomes
// one here too.
void BatchObserver::AsReference(Emitter& emitter, Node& node, const Emitted& was) const {
  if (was.op != "Reshape" || !IsOneOf(node, {"Gather", "GatherND"}) || was.numbers.size() != 2 || node.inputs.size() != 2) return;
  if (node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) return;
  const std::vector<int64_t>& target = was.numbers[1];
  if (Emitter::GatheredShape(emitter.graph(), node) == target) emitter.ReshapeTo(node, target);
}

void BatchObserver::After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results) {
  if (emitting()) return;
  const size_t index = index_++;
  if (mode_ == Mode::kRecord) {
    const Graph& graph = emitter.graph();
    for (ValueId id : results) found_.reference[index].outputs.push_back(id == kNoValue ? Shape{} : graph.value(id).shape);
  } else if (mode_ == Mode::kProve && !lost_) {
    prover_.After(emitter, node, results);
  }
}

std::vector<int64_t> BatchObserver::DeclaredParts() const {
  if (mode_ == Mode::kRecord || emitting() || lost_ || index_ >= found_.reference.size()) return {};
  const Emitted& was = found_.reference[index_];
  return was.op == "Split" && was.numbers.size() == 2 ? was.numbers[1] : std::vector<int64_t>();
}

}  // namespace gradloom

// Finds which nodes of a file for one batch size must change at another. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_apply.h"
#include "compiler/onnx/batch/batch_changes.h"
#include "compiler/onnx/batch/batch_values.h"
#include "compiler/onnx/emitter.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/error.h"

namespace gradloom {

// Sees the nodes of an import at another batch size than the declared one: an axis that has grown is the batch, and a node whose operands
// no longer fit, or whose constant shape would cut such an axis, gets the only change that fixes it.
class BatchProver {
 public:
  BatchProver(BatchChanges& found, int64_t batch) : found_(found), batch_(batch), application_(found, batch, /*proved=*/false) {}

  // Called with each node before its type inference, in order: finds its changes, applies them, and adds them to `found`, where the node at
  // the declared batch size has this index, too. Throws Error(kShape) naming the node if there is no such change, or more than one.
  void Before(Emitter& emitter, Node& node, size_t index);
  // Called when the results of that node are known.
  void After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results);

  // Whether nodes are being emitted for a change.
  bool emitting() const { return application_.emitting(); }
  // Whether a node required a change to an earlier one, so that the file must be walked again.
  bool again() const { return again_; }
  // For a file for a single sample: whether several positions of an operand were repeated for each sample.
  bool tiled() const { return tiled_; }

 private:
  using Emitted = BatchChanges::Emitted;

  void Apply(Emitter& emitter, Node& node, const BatchChange& change);
  std::vector<BatchChange> Prove(Emitter& emitter, const Node& node, const Emitted& was);
  void ProveReshape(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void FollowView(const Graph& graph, ValueId in, ValueId out, const Emitted& was);
  void FollowCounted(const Graph& graph, const Node& node, const std::vector<ValueId>& results);
  int64_t CountedBy(const Graph& graph, ValueId id) const;
  int Merged(const Node& node, const Emitted& was, int axis, const std::vector<int>& ways, bool evident, const std::string& why,
             bool transposes = false);
  void FollowPooled(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was);
  bool MayTile(const Graph& graph, const Node& node, const Emitted& was) const;
  Shard ShardOf(const Graph& graph, ValueId id, const Shape& was) const;
  void FollowSamples(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was);
  void ProveScatter(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveExpand(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void KeepTarget(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  void ProveResize(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveGroups(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  void ProveSlice(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveParts(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  bool StepsOverSamples(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  bool CutBatches(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  int64_t WholeBatches(ValueId id, int64_t extent) const;
  int64_t BatchesJoined(const Graph& graph, const Node& node, const Emitted& was) const;
  struct Choice;
  void ProveChosen(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveKnownChoice(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveElements(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveRegions(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveWritten(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveInverse(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  static std::vector<int64_t> OnlySample(const Choice& choice, const Tensor& indices, int axis);
  int64_t BatchesAlong(ValueId id) const;
  bool CountOnlySample(Emitter& emitter, ValueId indices, int column, int64_t places, bool any = false);
  bool IsPlaceOfPool(const Graph& graph, ValueId id) const;
  enum class Positions : uint8_t { kAny, kWithinSample, kNumbered };
  Positions PositionsOf(const Graph& graph, ValueId indices) const;
  void NumberRows(const Graph& graph, const Choice& choice, std::vector<BatchChange>& changes) const;
  void RecordCountedSample(std::vector<BatchChange>& changes) const;
  void ProveStates(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveOperands(Emitter& emitter, const Node& node, const Emitted& was, const Error& error, std::vector<BatchChange>& changes);
  // A way in which one operand follows the batch.
  struct Follows {
    int axis = -1;
    int64_t period = 1;
    std::vector<int64_t> steps = {};
    std::vector<int> table_axes = {};
    std::vector<std::pair<size_t, int>> draws = {};
  };
  std::vector<Follows> WaysToFollow(Emitter& emitter, ValueId id, bool may_tile) const;
  std::vector<Follows> TablesOf(Emitter& emitter, ValueId id) const;
  std::vector<std::vector<BatchChange>> Fitting(Emitter& emitter, const Node& node, const std::vector<std::vector<Follows>>& ways);
  std::vector<std::pair<size_t, int>> DrawsBehind(const Emitter& emitter, ValueId id, int axis) const;
  bool NoteDraws(const std::vector<std::pair<size_t, int>>& draws);
  void DrawForSamples(const Emitter& emitter, const Node& node, const Emitted& was);
  void RecordDraws(Emitter& emitter, const Node& node, std::vector<BatchChange>& changes) const;
  std::vector<int64_t> CountedSteps(Emitter& emitter, ValueId id, int axis) const;
  int64_t PeriodAlong(Emitter& emitter, ValueId id, int axis) const;
  // Returns the axes whose extents differ, which are batch axes; none if the rank differs.
  std::vector<int> BatchAxes(const Shape& now, const Shape& was) const;
  Error Refusal(const Node& node, const std::string& why) const { return BatchRefusal(found_.declared, Describe(node), why); }
  [[noreturn]] void Refuse(const Node& node, const std::string& why) const { throw Refusal(node, why); }

  BatchChanges& found_;
  const int64_t batch_;
  BatchApplication application_;
  size_t index_ = 0;  // of the current node
  // For values whose batch axis is a multiple of the batch: how many whole batches are contiguous there (T for [T,B] reshaped to [T*B]).
  std::map<ValueId, int64_t> outer_;
  int64_t next_outer_ = 0;  // of the current node; 0: not known
  // By graph or body and value. For a file for a single sample: the node that produced the value. For a value repeated by a change: the
  // node that reads it, and the change.
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, Node>> made_of_;
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, BatchChange>> repeated_;
  // The difference between the integers of one sample and of the next, if it is always the same.
  std::map<std::pair<const Graph*, ValueId>, int64_t> counted_;
  // The nodes that draw the value's random numbers.
  std::map<std::pair<const Graph*, ValueId>, size_t> draw_of_;
  bool again_ = false;
  // For a single sample: the sharding of computed values, and whether samples were combined.
  std::map<std::pair<const Graph*, ValueId>, Shard> shards_;
  bool combined_ = false, tiled_ = false;
  std::set<std::pair<const Graph*, ValueId>> pooled_;  // reductions over an axis that held all samples and more
};

}  // namespace gradloom

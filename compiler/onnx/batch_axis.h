// A file whose batch is a number may have that number in its shapes, too: in the target of a Reshape, in an Expand, in
// an initial state. Here it is found out which of them are the batch. Private to this directory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/emitter.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/error.h"

namespace gradloom {

// What is changed of one node that the importer emits.
struct BatchChange {
  int operand = 0;
  // Not 0: of no operand, but the attribute `group` of a convolution with filters for each sample, which becomes this times the batch.
  int64_t groups = 0;
  // Of such a convolution in a file for a single sample, which has no reshapes around it: samples are put beside each other before it, and
  // one behind the other again.
  bool beside = false;
  // Of a value that is the same for each sample along this axis: what it has for one, repeated for the batch.
  int axis = -1;
  // Places along the axis that are repeated: 1, or what the axis has for one sample where it is the batch and more.
  int64_t period = 1;
  // Where `axis` is -1, of a constant list of numbers: each is the batch times `batches` or, where that is 0, `number`.
  struct Entry {
    int64_t batches = 0;
    int64_t number = 0;
  };
  std::vector<Entry> entries;
  // Not empty: of a constant that counts samples along `axis`: what it has of each more than of the one before (StepsAlong).
  std::vector<int64_t> steps = {};
  // Whether those are added to the operand, which is no constant and the same for each sample but for its data.
  bool added = false;
};

// What a loop over bags (bag_loops.cc) has of numbers at the declared batch, in the order in which they are asked for. At another batch the
// loop is read by the same ones: where its bags begin and end may be constants that know the declared batch alone.
struct BagNumbers {
  bool bags = false;  // whether it is such a loop
  std::vector<std::optional<Tensor>> read;
};

// The changes that make a model with the batch `declared` one for any batch, by the number of the emitted node.
struct BatchChanges {
  int64_t declared = 0;
  struct Emitted {
    std::string op;
    std::vector<Shape> inputs, outputs;         // empty where absent
    std::vector<std::vector<int64_t>> numbers;  // of operands that are short constant lists of int64
  };
  std::vector<Emitted> reference;  // at the declared batch
  std::map<size_t, std::vector<BatchChange>> changes;
  // Of a file for a single sample, by node and operand: a 0 that turned out to be the sample's number.
  std::map<std::pair<size_t, int>, BatchChange> counted;
  // Of a file for a single sample: Reshapes that may merge it with one of several axes, alike ones together, in the order in which they
  // were met. Of the ways one is taken after the other until samples stay apart: then each is computed as in the file, whichever way that
  // is.
  struct Merge {
    Shape in, out;
    int axis = 0;  // of the sample in `in`
    size_t ways = 0, taken = 0;
    // The first way is what the extents say. What fails later may still be due to it: of two axes of extent 1 one is the sample's.
    bool evident = false;
    bool in_doubt() const { return !evident || taken > 0; }
  };
  std::vector<Merge> merges;
  std::optional<Error> ambiguous;  // where there is no such way: of the first of them

  std::vector<BagNumbers> loops;  // of each loop, in the order in which they come
  // Of each If that the data of a step decides, in that order: whether both branches give the same shapes.
  std::vector<bool> alike;

  bool doubts = false;  // whether the evident ones are gone through, too
  int tries = 0;

  // Whether samples are to stay apart, since nothing else says that a way is right.
  bool InDoubt() const;
  // Goes on to the next way; false: there is none.
  bool NextWay();
};

// Whether it is one of these operators of ONNX.
bool IsOneOf(const Node& node, std::initializer_list<const char*> ops);

// Whether the places along the axis, `period` at a time, are all the same, bit by bit.
bool RepeatsAlong(const Tensor& data, int axis, int64_t period);

// Looks on while a model is imported: first at its declared batch (kRecord); then at another one (kProve), where an axis
// that has grown is the batch, and a node whose operands no longer fit, or whose constant shape would cut such an axis,
// gets the one change that puts it right; then at any batch (kApply). Throws Error(kShape) naming a node for which
// there is no such change, or more than one.
class BatchWatch {
 public:
  enum class Mode : uint8_t { kRecord, kProve, kApply };
  BatchWatch(BatchChanges& found, Mode mode, int64_t batch) : found_(found), mode_(mode), batch_(batch) {}

  // Of the next loop; null: it is none over bags at the declared batch, or the loops are no longer those of that batch.
  BagNumbers* NextLoop();

  // What both branches of an If give that the data of a step decides. Refuses branches that give the same at the declared batch and not at
  // this one: they would be taken for ones that give other extents.
  void Join(const Node& node, const std::vector<ValueType>& then_branch, const std::vector<ValueType>& else_branch);
  // What went wrong in a body, whose nodes are not watched, as an error of the file's batch; at the declared one as it is.
  Error InBody(const Error& error) const;

  // Before the node gets its types: may replace operands.
  void Before(Emitter& emitter, Node& node);
  // Floating tensors of the file that hold a copy for each sample of its batch, one of which is used now. Of kApply.
  const std::set<std::string>& copies() const { return copies_; }

  // Of kProve: whether what was found at a node changes one before it, so that the file is to be gone through once more.
  bool again() const { return again_; }
  // Of kProve, in a file for a single sample: whether several places of an operand were repeated for each sample.
  bool tiled() const { return tiled_; }

  // Once its results are known.
  void After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results);

 private:
  using Emitted = BatchChanges::Emitted;

  void AsReference(Emitter& emitter, Node& node, const Emitted& was) const;
  void Apply(Emitter& emitter, Node& node, const BatchChange& change);
  void PutBeside(Emitter& emitter, Node& node);
  std::vector<BatchChange> Prove(Emitter& emitter, const Node& node, const Emitted& was);
  void ProveReshape(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void FollowView(const Graph& graph, ValueId in, ValueId out, const Emitted& was);
  void FollowCounted(const Graph& graph, const Node& node, const std::vector<ValueId>& results);
  int64_t CountedBy(const Graph& graph, ValueId id) const;
  int Merged(const Node& node, const Emitted& was, int axis, const std::vector<int>& ways, bool evident, const std::string& why);
  void FollowPooled(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was);
  bool MayTile(const Graph& graph, const Node& node, const Emitted& was) const;
  Shard ShardOf(const Graph& graph, ValueId id, const Shape& was) const;
  void FollowSamples(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was);
  void ProveScatter(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveExpand(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void KeepTarget(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  void ProveResize(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveGroups(const Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const;
  void ProveSlice(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  struct Choice;
  void ProveChosen(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveKnownChoice(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveElements(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveRegions(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveWritten(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes);
  static std::vector<int64_t> OnlySample(const Choice& choice, const Tensor& indices, int axis);
  int64_t Behind(ValueId id) const;
  bool CountOnlySample(Emitter& emitter, ValueId indices, int column, int64_t places);
  enum class Places : uint8_t { kAny, kWithinSample, kNumbered };
  Places PlacesOf(const Graph& graph, ValueId indices) const;
  void NumberRows(const Graph& graph, const Choice& choice, std::vector<BatchChange>& changes) const;
  void Recount(std::vector<BatchChange>& changes) const;
  void ProveStates(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes);
  void ProveOperands(Emitter& emitter, const Node& node, const Emitted& was, const Error& error, std::vector<BatchChange>& changes);
  bool MayHoldCopies(const Graph& graph, ValueId id, int64_t extent) const;
  void NoteCopies(const Emitter& emitter, ValueId id, int axis);
  std::vector<int64_t> CountedSteps(Emitter& emitter, ValueId id, int axis) const;
  int64_t PeriodAlong(Emitter& emitter, ValueId id, int axis) const;
  // The axes that have grown with the batch. Of a shape of another rank: none.
  std::vector<int> BatchAxes(const Shape& now, const Shape& was) const;
  Error Refusal(const Node& node, const std::string& why) const { return RefusalAt(Describe(node), why); }
  Error RefusalAt(const std::string& where, const std::string& why) const;
  [[noreturn]] void Refuse(const Node& node, const std::string& why) const;

  BatchChanges& found_;
  const Mode mode_;
  const int64_t batch_;
  size_t index_ = 0;     // of the next node
  size_t loop_ = 0;      // the next loop
  size_t join_ = 0;      // the next If
  bool inside_ = false;  // while nodes of our own are emitted
  bool lost_ = false;    // the nodes are no longer those of the reference
  // Of values whose batch axis is the batch and more: how many whole batches it holds one after the other (T of a
  // [T,B] made [T*B]).
  std::map<ValueId, int64_t> outer_;
  std::set<std::string> copies_;
  // Of kProve, by the graph or body and the value. In a file for a single sample: the node that made it; of what Apply repeated: the node
  // that reads it, and the change.
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, Node>> made_of_;
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, BatchChange>> repeated_;
  // What integers have of each sample more than of the one before, all of them alike.
  std::map<std::pair<const Graph*, ValueId>, int64_t> counted_;
  bool again_ = false;
  // The same, for a single sample: how samples lie in what was computed, and whether some of them have met.
  std::map<std::pair<const Graph*, ValueId>, Shard> shards_;
  bool met_ = false, tiled_ = false;
  std::set<std::pair<const Graph*, ValueId>> pooled_;  // made of an axis that held all samples and more, and has them no longer
  int64_t next_outer_ = 0;                             // of the node at hand; 0: not known
};

}  // namespace gradloom

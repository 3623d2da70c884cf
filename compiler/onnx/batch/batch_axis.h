// A file whose batch size is a number may contain that number in its shapes too: in the target of a Reshape, in an Expand, in an initial
// state. This determines which of these numbers are the batch. Private to compiler/onnx.
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

// A change to one node that the importer emits.
struct BatchChange {
  int operand = 0;
  // If not 0, the change is to no operand but to the attribute `group` of a convolution with filters per sample, which becomes this number
  // times the batch size.
  int64_t groups = 0;
  // For such a convolution in a file for a single sample, which has no reshapes around it: the samples are moved into the channels before
  // it, and back to the batch axis after it.
  bool samples_in_channels = false;
  // For a value that is the same for each sample along this axis: the part for one sample is repeated for the batch.
  int axis = -1;
  // The number of positions along the axis that are repeated: 1, or the positions of one sample if the axis is a multiple of the batch.
  int64_t period = 1;
  // If `axis` is -1, for a constant list of numbers: each is the batch size times `batches` or, if that is 0, `number`.
  struct Entry {
    int64_t batches = 0;
    int64_t number = 0;
  };
  std::vector<Entry> entries;
  // If not empty, for a constant that counts samples along `axis`: the difference between the values of one sample and the next
  // (StepsAlong).
  std::vector<int64_t> steps = {};
  // Whether `steps` are added to the operand, which is not a constant and contains no sample index of its own.
  bool added = false;
  // Whether the change is to no operand but to the attribute `shape` of a node that draws random numbers, which becomes `entries`.
  bool of_shape = false;
  // For a value computed from random numbers: the nodes that draw them and their axes over samples. Other samples get numbers of their own,
  // so these nodes are changed in the next walk, and in this one the value is repeated.
  std::vector<std::pair<size_t, int>> draws = {};
  // If not empty, for a constant in which samples differ, such as a table of all pairs of samples: the axes that get the extents of another
  // batch size. If its elements are not those of GrownTable, or may be trained, they are repeated there, which is only right for
  // ImportOptions::compared; otherwise `refusal` is thrown.
  std::vector<int> table_axes = {};
  std::optional<Error> refusal = {};
};

// The constants that a loop over bags (bag_loops.cc) reads at the declared batch size, in the order in which it reads them. At another
// batch size the loop is evaluated with the same constants, because the bounds of its bags may be constants that only fit the declared
// batch size.
struct BagNumbers {
  bool bags = false;  // whether it is such a loop
  std::vector<std::optional<Tensor>> read;
};

// The changes that turn a model for the batch size `declared` into one for any batch size, by index of the emitted node.
struct BatchChanges {
  int64_t declared = 0;
  struct Emitted {
    std::string op;
    std::vector<Shape> inputs, outputs;         // empty where absent
    std::vector<std::vector<int64_t>> numbers;  // of operands that are short constant int64 lists
  };
  std::vector<Emitted> reference;  // at the declared batch
  std::map<size_t, std::vector<BatchChange>> changes;
  // For a file for a single sample, by node and operand: a 0 that turned out to be the index of the sample.
  std::map<std::pair<size_t, int>, BatchChange> counted;
  // By node that draws random numbers: the axes that turned out to have an extent per sample.
  std::map<size_t, std::set<int>> drawn;
  // For a file for a single sample: Reshapes that may merge the sample with one of several axes. Equal ones are listed once, in the order
  // in which they are met. Possibilities are tried one after the other until one keeps samples apart: then each sample is computed as in
  // the file, whichever possibility that is.
  struct Merge {
    Shape in, out;
    int axis = 0;  // the axis of the sample in `in`
    size_t ways = 0, taken = 0;
    // The first possibility follows from the extents. It may still be wrong if something fails later: of two axes of extent 1, one is that
    // of the sample.
    bool evident = false;
    bool unconfirmed() const { return !evident || taken > 0; }
  };
  std::vector<Merge> merges;
  std::optional<Error> ambiguous;  // if there is no such possibility: the error of the first of them

  std::vector<BagNumbers> loops;  // by loop, in order
  // For each If with a data-dependent condition, in order: whether both branches have the same result types.
  std::vector<bool> alike;

  bool compared = false;        // ImportOptions::compared
  bool varies_evident = false;  // whether the evident choices are varied too
  int tries = 0;

  // Whether a choice was made that is only confirmed if samples stay apart.
  bool HasUnconfirmedChoice() const;
  // Moves on to the next combination of choices; returns false if there is none.
  bool NextCombination();
};

// Whether the node has one of these ONNX operators.
bool IsOneOf(const Node& node, std::initializer_list<const char*> ops);

// Whether the node draws one random number for each element of its result.
bool IsDraw(const Node& node);

// Returns a short list of integers that is computed from constants, even if those include a floating-point constant that might be trained.
std::vector<int64_t> NumbersOf(Emitter& emitter, ValueId id);

// Returns the axis of operand i that an axis of the node's output comes from, for an output of this rank; -1: unknown; nullopt: it comes
// from another operand.
std::optional<int> SourceAxis(const Graph& graph, const Node& node, size_t i, int out_rank, int axis);

// Whether the data repeats bitwise along the axis with this period.
bool RepeatsAlong(const Tensor& data, int axis, int64_t period);
// The data with another extent along the axis: position i is that of position i modulo the old extent.
Tensor RepeatedAlong(const Tensor& data, int axis, int64_t extent);

// A table over pairs of samples for another batch size, if each element depends only on which of the two samples comes first, or whether
// they are the same (masks of the diagonal or of a triangle). Along each axis there may be several batches one after the other, or several
// positions of each sample; the element then depends on these, too. nullopt if it is no such table, or with fewer than three samples, where
// every table is one.
std::optional<Tensor> GrownTable(const Tensor& data, const std::vector<int>& axes, int64_t declared, int64_t batch);

// Observes the import of a model: first at its declared batch size (kRecord); then at another one (kProve), where an axis that has grown is
// the batch, and a node whose operands no longer fit, or whose constant shape would cut such an axis, gets the only change that fixes it;
// then at any batch size (kApply). Throws Error(kShape) naming a node for which there is no such change, or more than one.
class BatchObserver {
 public:
  enum class Mode : uint8_t { kRecord, kProve, kApply };
  BatchObserver(BatchChanges& found, Mode mode, int64_t batch) : found_(found), mode_(mode), batch_(batch) {}

  // Returns the constants of the next loop; null if it is not a loop over bags at the declared batch size, or if the loops no longer
  // correspond to those at that size.
  BagNumbers* NextLoop();

  // Records the result types of both branches of an If with a data-dependent condition. Refuses branches whose types are equal at the
  // declared batch size and differ at this one: they would be taken for branches with different extents.
  void Join(const Node& node, const std::vector<ValueType>& then_branch, const std::vector<ValueType>& else_branch);
  // Turns an error in a body, whose nodes are not observed, into one about the file's batch size; at the declared size returns it
  // unchanged.
  Error InBody(const Error& error) const;

  // Returns the sizes of the parts of the next node if it is a Split, at the declared batch size; otherwise none.
  std::vector<int64_t> DeclaredParts() const;

  // Called before type inference of the node; may replace operands.
  void Before(Emitter& emitter, Node& node);
  // In mode kApply: floating-point tensors of the file that hold one copy per sample of its batch, of which only one is used now.
  const std::set<std::string>& copies() const { return copies_; }

  // In mode kProve: whether a node required a change to an earlier one, so that the file must be walked again.
  bool again() const { return again_; }
  // In mode kProve, for a file for a single sample: whether several positions of an operand were repeated for each sample.
  bool tiled() const { return tiled_; }

  // Called when the node's results are known.
  void After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results);

 private:
  using Emitted = BatchChanges::Emitted;

  void AsReference(Emitter& emitter, Node& node, const Emitted& was) const;
  void Apply(Emitter& emitter, Node& node, const BatchChange& change);
  Tensor Repeated(Emitter& emitter, ValueId id, const BatchChange& change) const;
  void MoveSamplesToChannels(Emitter& emitter, Node& node);
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
  bool MayHoldCopies(const Graph& graph, ValueId id, int64_t extent) const;
  void NoteCopies(const Emitter& emitter, ValueId id, int axis);
  std::vector<int64_t> CountedSteps(Emitter& emitter, ValueId id, int axis) const;
  int64_t PeriodAlong(Emitter& emitter, ValueId id, int axis) const;
  // Returns the axes whose extents differ, which are batch axes; none if the rank differs.
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
  bool inside_ = false;  // while this class emits nodes
  bool lost_ = false;    // the nodes no longer correspond to the reference
  // For values whose batch axis is a multiple of the batch: how many whole batches are contiguous there (T for [T,B] reshaped to [T*B]).
  std::map<ValueId, int64_t> outer_;
  std::set<std::string> copies_;
  // In mode kProve, by graph or body and value. For a file for a single sample: the node that produced the value. For a value repeated by
  // Apply: the node that reads it, and the change.
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, Node>> made_of_;
  std::map<std::pair<const Graph*, ValueId>, std::pair<size_t, BatchChange>> repeated_;
  // The difference between the integers of one sample and of the next, if it is always the same.
  std::map<std::pair<const Graph*, ValueId>, int64_t> counted_;
  // The nodes that draw the value's random numbers.
  std::map<std::pair<const Graph*, ValueId>, size_t> draw_of_;
  bool again_ = false;
  // In mode kProve, for a single sample: the sharding of computed values, and whether samples were combined.
  std::map<std::pair<const Graph*, ValueId>, Shard> shards_;
  bool combined_ = false, tiled_ = false;
  std::set<std::pair<const Graph*, ValueId>> pooled_;  // reductions over an axis that held all samples and more
  int64_t next_outer_ = 0;                             // of the current node; 0: not known
};

}  // namespace gradloom

// Data parallelism: how the values of a graph are divided over devices that share the samples of a batch, and what operators make of that.
// compiler/passes/devices/replicate_data asks the rows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/ops/op.h"

namespace gradloom {

struct Shard {
  enum class Kind : uint8_t {
    kWhole,    // every device has the whole value, bit by bit the same
    kSplit,    // every device has the part of its samples
    kPartial,  // the value is the sum of the devices' values
    kLocal,    // every device has a different value, a statistic of its samples
  };
  Kind kind = Kind::kWhole;
  // kSplit: the axis of the samples; sample s has the positions (o * batch + s) * inner + i, 0 <= i < inner, for every o. inner 0: all
  // positions are alike, so any division of the axis is valid.
  int axis = 0;
  int64_t inner = 1;
  // kSplit: by how much elements increase from each sample to the next, per position along the last axis or one number for all. Such
  // elements count samples, or positions of samples, and each device counts from its own first sample. Empty: they do not count.
  std::vector<int64_t> steps = {};

  static Shard Whole() { return {}; }
  static Shard Split(int axis, int64_t inner) { return {.kind = Kind::kSplit, .axis = axis, .inner = inner}; }
  static Shard Partial() { return {.kind = Kind::kPartial}; }
  static Shard Local() { return {.kind = Kind::kLocal}; }

  // kSplit: a valid `inner` for an axis of this extent.
  int64_t InnerOf(int64_t extent, int64_t batch) const { return inner == 0 ? extent / batch : inner; }

  bool whole() const { return kind == Kind::kWhole; }
  bool split() const { return kind == Kind::kSplit; }
  bool partial() const { return kind == Kind::kPartial; }
  bool local() const { return kind == Kind::kLocal; }
  bool operator==(const Shard&) const = default;
};

// The arguments of a sharding rule, a node over the whole batch, and its result: the shards of the outputs.
class ShardQuery {
 public:
  // `inputs` by operand; `growing` by output: the axis that grows with the batch, or -1.
  ShardQuery(const Graph& graph, const Node& node, int64_t batch, std::vector<Shard> inputs, std::vector<int> growing)
      : graph_(graph),
        node_(node),
        batch_(batch),
        inputs_(std::move(inputs)),
        growing_(std::move(growing)),
        outputs_(node.outputs.size()) {}

  const Node& node() const { return node_; }
  const Attributes& attributes() const { return node_.attributes; }
  int64_t batch() const { return batch_; }
  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool has(int i) const { return i < num_inputs() && node_.inputs[static_cast<size_t>(i)] != kNoValue; }
  // The shape of an operand that is present.
  const Shape& shape(int i) const { return graph_.value(node_.inputs[static_cast<size_t>(i)]).shape; }
  // The shape of an output that is present.
  const Shape& out_shape(int i) const { return graph_.value(node_.outputs[static_cast<size_t>(i)]).shape; }
  DType out_dtype() const { return graph_.value(node_.outputs[0]).dtype; }
  // The axis of the output that grows with the batch, or -1.
  int growing(int i) const { return growing_[static_cast<size_t>(i)]; }
  // The axis, or axes, of an attribute or a constant operand, normalized to be nonnegative.
  int AxisAttribute(const char* name, int64_t absent, int rank) const;
  std::vector<int64_t> Ints(int i, const std::vector<int64_t>& absent = {}) const;
  // Whether every element of the constant operand is 0.
  bool IsZero(int i) const;

  // The shard of an operand; whole if it is absent.
  Shard given(int i) const { return has(i) ? inputs_[static_cast<size_t>(i)] : Shard::Whole(); }
  // The same, for a rule that cannot use a partial sum: it is summed over the devices first. Refuses statistics of one device.
  Shard in(int i);
  // Refuses an operand that is not the same on all devices.
  void ExpectWhole(int i);
  // Whether an operand counts samples (Shard::steps). TakeSteps returns the steps of each operand and removes them.
  bool counts() const;
  std::vector<std::vector<int64_t>> TakeSteps();

  void set(int i, Shard shard) { outputs_[static_cast<size_t>(i)] = shard; }
  void SetAll(Shard shard) { outputs_.assign(outputs_.size(), shard); }
  // The output is a mean over samples, and must be computed as a sum divided by the whole batch's count.
  void MakeMeanOverSamples() { mean_ = true; }
  // The output is the operator's result over one device's samples; the same operator over the devices' results makes it whole.
  void MakeCombination() { combined_ = true; }

  // Throws Error(kUnsupported) naming the node.
  [[noreturn]] void Refuse(const std::string& why) const;

  const std::vector<Shard>& outputs() const { return outputs_; }
  const std::set<int>& reduced() const { return reduced_; }
  bool mean() const { return mean_; }
  bool combined() const { return combined_; }

 private:
  const Graph& graph_;
  const Node& node_;
  int64_t batch_;
  std::vector<Shard> inputs_;
  std::vector<int> growing_;
  std::vector<Shard> outputs_;
  std::set<int> reduced_;  // operands that must be summed over the devices first
  bool mean_ = false, combined_ = false;
};

// The rule for operands that count samples: arithmetic on such numbers, and operators that select elements of samples by them.
void ShardCounted(ShardQuery& query);

// Answers for the node by its operator's row. Throws Error(kUnsupported) naming the node if the operator mixes samples, or has no rule and
// an operand that is split.
void InferShards(ShardQuery& query);
// The same, if no operand counts samples.
void InferShardsByRow(ShardQuery& query);

// `one`, or `other` if `one` is whole; refuses two that divide an axis in different ways.
Shard Joined(const ShardQuery& query, Shard one, Shard other);

// --- rules that several families share -------------------------------------------------------------------------------------

// Output elements depend only on the inputs' elements at the same position; broadcasts.
void ShardPointwise(ShardQuery& query);

// The operands do not decide how the output is divided: it is split if an axis grows with the batch, else whole.
void ShardGrowing(ShardQuery& query);

// Elements are combined only along the axis of attribute "axis". All operands and outputs have the shape of operand 0, up to that axis.
void ShardAlongAxis(ShardQuery& query);

// Elements are combined from the axis of attribute "axis" on. Operand and output 0 have the shape of input `like`. Inputs after it are
// parameters. Other outputs have its leading axes or, in a gradient, are parameters' gradients.
void ShardFromAxis(ShardQuery& query, int like);

// Applies the row's `samples`, or these.
void ShardSamples(ShardQuery& query, std::string_view samples);

// For the gradient of an operator with these `samples` (of its inputs only): the first operands are those of the operator, and the
// attribute "wanted" lists the inputs whose gradients are the outputs.
void ShardWantedGradients(ShardQuery& query, std::string_view inputs, std::string_view gradients);

}  // namespace gradloom

// The operands of a model's losses: its outputs, its inputs, and targets, which become inputs of the graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Extents of outputs that the data of a step decides. By output and axis: the int64 scalar that says how many elements along the axis, from
// the first on, are valid.
using OutputExtents = std::map<ValueId, std::map<int, ValueId>>;

class LossOperands {
 public:
  // `output_names`: names of graph outputs whose values have other names. All arguments must outlive this.
  LossOperands(GraphBuilder& builder, const std::map<ValueId, std::string>& output_names, const OutputExtents& extents);

  // The counts of an output; empty if all of it is valid.
  const std::map<int, ValueId>& Extents(ValueId output) const;
  // A bool tensor, to be broadcast to `shape`, that marks the valid elements of a value of that shape with these extents; kNoValue if all
  // are valid.
  ValueId Counts(const std::map<int, ValueId>& extents, const Shape& shape);

  // The output of this name, or the first one if it is empty. Throws Error(kConfig) listing the outputs.
  ValueId Output(const std::string& name, const std::string& where) const;

  // The output or input of the model of this name, or kNoValue.
  ValueId FindOutput(const std::string& name) const;
  ValueId FindInput(const std::string& name) const;
  std::vector<std::string> OutputNames() const;

  // Says that this is the name of a target, even if an output that could be compared with another one has it, too.
  void NameTarget(const std::string& name) { named_targets_.insert(name); }

  // The target of this name with this type. The first use makes it an input of the graph; the name may also be that of an inner value or of
  // an output. An input of the model is its own target. A target that exists with the same extents except for trailing ones ([B] and [B,1])
  // is reshaped. Throws Error(kShape, kType) for any other difference, with both shapes, and Error(kConfig) for the name of a
  // floating-point output of this type that NameTarget does not know: the two outputs were probably to be compared. `where`: the loss;
  // `wanted_by`: why it needs this type.
  ValueId Target(const std::string& name, const ValueType& type, const std::string& where, const std::string& wanted_by);

  // A target that already exists, or kNoValue.
  ValueId FindTarget(const std::string& name) const;

  // The names under which targets are fed if their values have other names.
  const std::map<ValueId, std::string>& feed_names() const { return feed_names_; }

 private:
  std::string NameOf(ValueId output) const;
  // Throws Error(kConfig) if the name of a target is that of an output of this type which nothing says is another value.
  void CheckIsNoOutput(const std::string& name, const ValueType& type, const std::string& where) const;
  // Whether it exists only as an extent of another output.
  bool IsOnlyExtent(ValueId output) const;

  GraphBuilder& b_;
  const std::map<ValueId, std::string>& output_names_;
  const OutputExtents& extents_;
  const std::vector<ValueId> inputs_;  // of the model
  std::map<std::string, ValueId> targets_;
  std::map<ValueId, std::string> feed_names_;
  std::set<std::string> named_targets_;
};

}  // namespace gradloom

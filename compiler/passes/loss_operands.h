// What the losses of a model read: its outputs, its inputs, and targets, which become inputs of the graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Extents of outputs that the data of a step decides, by output and axis: the int64 scalar that says how many elements along the axis
// count, from the front.
using OutputExtents = std::map<ValueId, std::map<int, ValueId>>;

class LossOperands {
 public:
  // `output_names`: of graph outputs whose values are called otherwise. All must outlive the operands.
  LossOperands(GraphBuilder& builder, const std::map<ValueId, std::string>& output_names, const OutputExtents& extents);

  // Of an output; empty where its shape is what counts.
  const std::map<int, ValueId>& Extents(ValueId output) const;
  // bool, to be broadcast to `shape`: what counts of a value of that shape that has these extents; kNoValue where all does.
  ValueId Counts(const std::map<int, ValueId>& extents, const Shape& shape);

  // The output of this name, the first one where it is empty. Throws Error(kConfig) naming those there are.
  ValueId Output(const std::string& name, const std::string& where) const;

  // The output or input of the model of this name, or kNoValue.
  ValueId FindOutput(const std::string& name) const;
  ValueId FindInput(const std::string& name) const;
  std::vector<std::string> OutputNames() const;

  // The target of this name with this type. The first use makes it an input of the graph; a name that only an inner
  // value has is a target all the same. An input of the model is its own target. A target that is known with the same
  // extents but for ones at the end ([B] and [B,1]) is reshaped. Throws Error(kShape, kType) for every other one, naming
  // both shapes, Error(kConfig) for the name of an output. `where`: the loss; `wanted_by`: why it has this type.
  ValueId Target(const std::string& name, const ValueType& type, const std::string& where, const std::string& wanted_by);

  // A target that is known by now, or kNoValue.
  ValueId FindTarget(const std::string& name) const;

  // The names under which targets are fed where their values are called otherwise.
  const std::map<ValueId, std::string>& feed_names() const { return feed_names_; }

 private:
  std::string NameOf(ValueId output) const;
  // Whether it says an extent of another one: nothing that the model gives.
  bool SaysExtent(ValueId output) const;

  GraphBuilder& b_;
  const std::map<ValueId, std::string>& output_names_;
  const OutputExtents& extents_;
  const std::vector<ValueId> inputs_;  // of the model
  std::map<std::string, ValueId> targets_;
  std::map<ValueId, std::string> feed_names_;
};

// Whether the shapes are the same but for ones at the end.
bool SameButForTrailingOnes(const Shape& a, const Shape& b);

}  // namespace gradloom

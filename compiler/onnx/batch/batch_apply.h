// Applies changes for a batch size to the nodes of an import. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "compiler/onnx/batch/batch_changes.h"
#include "compiler/onnx/emitter.h"

namespace gradloom {

class BatchApplication {
 public:
  // `proved`: whether the changes are known to be right; then constants in which samples differ are refused if they cannot be computed.
  BatchApplication(const BatchChanges& found, int64_t batch, bool proved) : found_(found), batch_(batch), proved_(proved) {}

  // Replaces the operand or the attribute. Emits the nodes that compute the operand.
  void Apply(Emitter& emitter, Node& node, const BatchChange& change);

  // Whether nodes are being emitted for a change.
  bool emitting() const { return emitting_; }
  // If the changes are proved: floating-point tensors of the file that hold one copy per sample of its batch, of which only one is used.
  const std::set<std::string>& copies() const { return copies_; }
  // The result of the last convolution whose samples became groups of channels, and the number of filters of each.
  ValueId convolution() const { return convolution_; }
  int64_t filters() const { return filters_; }

 private:
  class Emitting;
  ValueId Operand(Emitter& emitter, const Node& node, const BatchChange& change);
  ValueId Numbers(Emitter& emitter, const std::string& name, const std::vector<int64_t>& values) const;
  ValueId WithSteps(Emitter& emitter, ValueId indices, const BatchChange& change, const std::string& name) const;
  ValueId RepeatedPart(Emitter& emitter, ValueId id, const BatchChange& change, const std::string& name) const;
  Tensor Repeated(Emitter& emitter, ValueId id, const BatchChange& change) const;
  std::vector<int64_t> NumbersOf(const BatchChange& change) const;
  void MoveSamplesToChannels(Emitter& emitter, Node& node);
  bool MayHoldCopies(const Graph& graph, ValueId id, int64_t extent) const;
  void NoteCopies(const Emitter& emitter, ValueId id, int axis);

  const BatchChanges& found_;
  const int64_t batch_;
  const bool proved_;
  bool emitting_ = false;
  std::set<std::string> copies_;
  ValueId convolution_ = kNoValue;
  int64_t filters_ = 0;
};

}  // namespace gradloom

// A file whose batch size is a number may contain that number in its shapes too: in the target of a Reshape, in an Expand, in an initial
// state. This determines which of these numbers are the batch. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/batch/batch_apply.h"
#include "compiler/onnx/batch/batch_changes.h"
#include "compiler/onnx/batch/batch_prover.h"
#include "compiler/onnx/emitter.h"
#include "runtime/base/error.h"

namespace gradloom {

// Observes the import of a model: first at its declared batch size (kRecord); then at another one (kProve), where an axis that has grown is
// the batch, and a node whose operands no longer fit, or whose constant shape would cut such an axis, gets the only change that fixes it;
// then at any batch size (kApply). Throws Error(kShape) naming a node for which there is no such change, or more than one.
class BatchObserver {
 public:
  enum class Mode : uint8_t { kRecord, kProve, kApply };
  BatchObserver(BatchChanges& found, Mode mode, int64_t batch)
      : found_(found), mode_(mode), prover_(found, batch), application_(found, batch, /*proved=*/true) {}

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
  const std::set<std::string>& copies() const { return application_.copies(); }

  // In mode kProve: whether a node required a change to an earlier one, so that the file must be walked again.
  bool again() const { return prover_.again(); }
  // In mode kProve, for a file for a single sample: whether several positions of an operand were repeated for each sample.
  bool tiled() const { return prover_.tiled(); }

  // Called when the node's results are known.
  void After(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results);

 private:
  using Emitted = BatchChanges::Emitted;

  void Record(Emitter& emitter, const Node& node);
  void AsReference(Emitter& emitter, Node& node, const Emitted& was) const;
  bool emitting() const { return prover_.emitting() || application_.emitting(); }

  BatchChanges& found_;
  const Mode mode_;
  BatchProver prover_;            // in mode kProve
  BatchApplication application_;  // in mode kApply
  size_t index_ = 0;              // of the next node
  size_t loop_ = 0;               // the next loop
  size_t join_ = 0;               // the next If
  bool lost_ = false;             // the nodes no longer correspond to the reference
};

}  // namespace gradloom

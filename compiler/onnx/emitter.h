// Appends nodes to a graph that is being imported: infers their types, folds constants, and records which values may be weights. Private to
// compiler/onnx.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/onnx/extents/extents.h"
#include "compiler/onnx/import.h"

namespace gradloom {

class BatchObserver;

class Emitter {
 public:
  // All arguments must outlive the emitter.
  Emitter(Graph& graph, const TypeRules& rules, const ModelLimits& limits)
      : graph_(graph), rules_(rules), limits_(limits), extents_(*this) {}

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  const TypeRules& rules() const { return rules_; }
  const ModelLimits& limits() const { return limits_; }

  // Adds a node of opset kOpset with known inputs. `names` has one entry per output; an empty name means that the output is not used
  // (kNoValue in the result). A node with only constant inputs is folded, unless a tensor that may be trained flows through it. If extents
  // depend on the data of a step, other nodes compute the same result (extents.h). Throws what TypeRules throws, kValue for invalid
  // constant operands, kLimit for a value that exceeds the limits.
  std::vector<ValueId> Emit(Node node, const std::vector<std::string>& names);
  // The same for a node whose operands have no extents that depend on data.
  std::vector<ValueId> EmitStatic(Node node, const std::vector<std::string>& names);

  DataExtents& extents() { return extents_; }

  // Computes output 0 of the node, as int64, for these operands instead of its own; false: it cannot be computed here.
  bool ComputeOn(const Node& node, const std::vector<Tensor>& operands, Tensor& result) const;

  // Adds a node unchanged, with outputs of these types, without type inference or folding. For nodes with bodies. Throws kLimit.
  std::vector<ValueId> Append(Node node, const std::vector<std::string>& names, const std::vector<ValueType>& types);

  // Sets an observer that sees every node before and after it is emitted; it may be null.
  void set_batch_observer(BatchObserver* watch) { batch_observer_ = watch; }
  BatchObserver* batch_observer() const { return batch_observer_; }

  // Throws what Emit would throw in the type inference of the node.
  void CheckTypes(Node node) { InferTypes(node); }

  // Adds a constant. A floating-point tensor of the file (`of_file`) may be trained, so it is never folded into another value.
  ValueId AddConstant(const std::string& name, Tensor data, bool of_file = false);

  // The value's data if it is a constant, or null.
  const Tensor* Constant(ValueId id) const;

  // A constant that equals the value: the value itself; or a new one if the value is computed only from constants, even if weights flow
  // through it; or kNoValue.
  ValueId Computed(ValueId id);

  // The node that computes the value, or null.
  const Node* Producer(ValueId id) const;

  // The shape of the result of a Gather, or of a GatherND with complete indices, as one number for each axis of its operand.
  static std::vector<int64_t> GatheredShape(const Graph& graph, const Node& node);
  // Turns the node into a Reshape of its first operand.
  void ReshapeTo(Node& node, const std::vector<int64_t>& target);

  bool may_train(ValueId id) const { return Flag(may_train_, id); }

 private:
  static bool Flag(const std::vector<bool>& flags, ValueId id) {
    return static_cast<size_t>(id) < flags.size() && flags[static_cast<size_t>(id)];
  }
  static void SetFlag(std::vector<bool>& flags, ValueId id);

  std::vector<ValueType> InferTypes(Node& node);
  // The types, or nullopt if the values of operands must be known first.
  std::optional<std::vector<ValueType>> TryInfer(const Node& node);
  // Replaces the chosen operands that are computed from constants by constants; false if there are none.
  bool ForceOperands(Node& node, const std::function<bool(size_t)>& chosen);
  // Folds an operator whose extents depend on data, if all that data is known.
  std::vector<ValueId> EmitKnown(const Node& node, const std::vector<std::string>& names);
  void ReshapeInOrder(Node& node);
  void GatherFromVector(Node& node) const;
  void NameSqueezed(Node& node);
  bool ShapeOnly(const Node& node, Tensor& result) const;
  bool Computable(const Node& node) const;
  bool DropsNothing(const Node& node) const;
  bool Foldable(const Node& node, const std::vector<ValueType>& types, const std::vector<std::string>& names) const;
  std::vector<Tensor> Run(const Node& node, const std::vector<ValueType>& types);
  void CheckSizes(const Node& node, const std::vector<ValueType>& types) const;
  void CheckCount(const Node& node) const;
  ValueId AddOutput(const std::string& name, const ValueType& type);

  Graph& graph_;
  const TypeRules& rules_;
  const ModelLimits& limits_;
  BatchObserver* batch_observer_ = nullptr;
  std::vector<bool> may_train_;   // by value: a weight, or a floating-point value computed from one without other inputs
  std::vector<bool> computable_;  // by value: depends only on constants
  std::vector<int> producer_;     // by value: position of its node; -1: none
  int64_t folded_bytes_ = 0;
  DataExtents extents_;
};

}  // namespace gradloom

// Appends nodes to a graph that is being imported: infers their types, folds what is constant, and remembers what
// may be a weight. Private to this directory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/onnx/extents.h"
#include "compiler/onnx/import.h"

namespace gradloom {

class BatchWatch;

class Emitter {
 public:
  // All must outlive the emitter.
  Emitter(Graph& graph, const TypeRules& rules, const ModelLimits& limits)
      : graph_(graph), rules_(rules), limits_(limits), extents_(*this) {}

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  const TypeRules& rules() const { return rules_; }
  const ModelLimits& limits() const { return limits_; }

  // Adds a node of opset kOpset with known inputs. `names` has one entry per output; an empty name is an output
  // that nobody wants (kNoValue in the result). A node whose inputs are all constant is computed at once, unless a
  // tensor that may be trained flows through it. Throws what TypeRules throws, kValue where constant operands make
  // no sense, kLimit for a value past the limits. Where the data of a step decides extents, other nodes compute the same (extents.h).
  std::vector<ValueId> Emit(Node node, const std::vector<std::string>& names);
  // The same for a node whose operands are as their shapes say.
  std::vector<ValueId> EmitStatic(Node node, const std::vector<std::string>& names);

  DataExtents& extents() { return extents_; }

  // Output 0 of the node for these operands instead of its own, as int64; false: it cannot be computed here.
  bool ComputeOn(const Node& node, const std::vector<Tensor>& operands, Tensor& result) const;

  // Adds a node as it is, with outputs of these types: nothing is inferred, nothing folded. For one with bodies. Throws kLimit.
  std::vector<ValueId> Append(Node node, const std::vector<std::string>& names, const std::vector<ValueType>& types);

  // Sees every node before and after it is emitted; null: nobody does.
  void set_batch_watch(BatchWatch* watch) { batch_watch_ = watch; }
  BatchWatch* batch_watch() const { return batch_watch_; }

  // Throws what Emit would throw for the node's types.
  void CheckTypes(Node node) { InferTypes(node); }

  // A constant. A floating one that is a tensor `of_file` may be trained, so it is never folded into another value.
  ValueId AddConstant(const std::string& name, Tensor data, bool of_file = false);

  // The value's data if it is a constant, or null.
  const Tensor* Constant(ValueId id) const;

  // A constant that equals the value: itself; or a new one where the value is computed from constants alone, even
  // if weights flow through it; or kNoValue.
  ValueId Computed(ValueId id);

  // The node that makes the value, or null.
  const Node* Producer(ValueId id) const;

  // The shape of what a Gather gives, or a GatherND whose indices are whole: one number for each axis of its operand.
  static std::vector<int64_t> GatheredShape(const Graph& graph, const Node& node);
  // The node becomes a Reshape of its first operand.
  void ReshapeTo(Node& node, const std::vector<int64_t>& target);

  bool may_train(ValueId id) const { return Flag(may_train_, id); }

 private:
  static bool Flag(const std::vector<bool>& flags, ValueId id) {
    return static_cast<size_t>(id) < flags.size() && flags[static_cast<size_t>(id)];
  }
  static void SetFlag(std::vector<bool>& flags, ValueId id);

  std::vector<ValueType> InferTypes(Node& node);
  // The types, or nothing where operands must be known first.
  std::optional<std::vector<ValueType>> TryInfer(const Node& node);
  // Puts constants in the place of the chosen operands that are computed from constants; false where there are none.
  bool ForceOperands(Node& node, const std::function<bool(size_t)>& chosen);
  // Of an operator whose extents depend on data: computed here, where all of that is known.
  std::vector<ValueId> EmitKnown(const Node& node, const std::vector<std::string>& names);
  void ReshapeInOrder(Node& node);
  void GatherFromVector(Node& node) const;
  bool ShapeOnly(const Node& node, Tensor& result) const;
  bool Computable(const Node& node) const;
  bool Foldable(const Node& node, const std::vector<ValueType>& types, const std::vector<std::string>& names) const;
  std::vector<Tensor> Run(const Node& node, const std::vector<ValueType>& types);
  void CheckSizes(const Node& node, const std::vector<ValueType>& types) const;
  void CheckCount(const Node& node) const;
  ValueId AddOutput(const std::string& name, const ValueType& type);

  Graph& graph_;
  const TypeRules& rules_;
  const ModelLimits& limits_;
  BatchWatch* batch_watch_ = nullptr;
  std::vector<bool> may_train_;   // by value: a weight, or a floating value computed from one without other inputs
  std::vector<bool> computable_;  // by value: depends on constants alone
  std::vector<int> producer_;     // by value: position of its node, -1 where there is none
  int64_t folded_bytes_ = 0;
  DataExtents extents_;
};

// Whether an operator gives the same result for the same inputs, by its ONNX schema.
bool IsDeterministic(std::string_view domain, const std::string& op);

}  // namespace gradloom

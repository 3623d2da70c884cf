// Appends nodes to a graph and infers their types.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Infers the dtypes and shapes of a node's outputs from those (and, if constant, the data) of its inputs. Implemented in compiler/onnx with
// the ONNX schemas and the rows of compiler/ops.
class TypeRules {
 public:
  virtual ~TypeRules() = default;

  // One type per entry of node.outputs; callers ignore those of kNoValue entries. Throws Error(kShape, kType, kAttr, kArity ...) naming the
  // node if the operands do not fit.
  virtual std::vector<ValueType> Infer(const Graph& graph, const Node& node) const = 0;
};

class GraphBuilder {
 public:
  // Both must outlive the builder.
  GraphBuilder(Graph& graph, const TypeRules& rules) : graph_(graph), rules_(rules) {}

  Graph& graph() { return graph_; }
  const TypeRules& rules() const { return rules_; }

  // Phase and origin of the nodes that are appended from now on. Names of their outputs begin with the origin, unless it is empty.
  void set_phase(Phase phase) { phase_ = phase; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  Phase phase() const { return phase_; }

  // A standard operator with one output.
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});

  // Any operator. `domain` "" is ONNX's, "gradloom" ours.
  std::vector<ValueId> Ops(const std::string& op, std::string_view domain, std::vector<ValueId> inputs, int num_outputs,
                           Attributes attributes = {});

  // One of Gradloom's own operators, with one output.
  ValueId Own(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});

  ValueId Constant(Tensor data, const std::string& name = "const");
  ValueId Ints(const std::vector<int64_t>& values);  // int64[n], for shapes and axes
  ValueId Scalar(double value, DType dtype);         // rank 0
  ValueId Zeros(const ValueType& type);
  ValueId Fill(const ValueType& type, double value);

  // Shorthands. Binary operators broadcast like ONNX's. Operations that would change nothing return their input.
  ValueId Add(ValueId a, ValueId b) { return Op("Add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Op("Sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Op("Mul", {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Op("Div", {a, b}); }
  ValueId Neg(ValueId a) { return Op("Neg", {a}); }
  ValueId Scale(ValueId a, double factor) { return Mul(a, Scalar(factor, graph_.value(a).dtype)); }
  ValueId MatMul(ValueId a, ValueId b) { return Op("MatMul", {a, b}); }
  ValueId Where(ValueId condition, ValueId a, ValueId b) { return Op("Where", {condition, a, b}); }
  ValueId Cast(ValueId a, DType dtype);
  // Shapes are passed by value: a reference to the shape of a value in the graph becomes invalid when a node is appended.
  ValueId Reshape(ValueId a, Shape shape);
  ValueId Transpose(ValueId a, const std::vector<int64_t>& perm);
  ValueId Expand(ValueId a, Shape shape);
  // Axes may be negative; empty: all axes.
  ValueId ReduceSum(ValueId a, std::vector<int64_t> axes, bool keepdims);

  // Sums a gradient of a broadcast operand back to the operand's shape: the adjoint of Expand.
  ValueId ReduceTo(ValueId a, Shape shape);

  // By value: a reference into the graph becomes invalid when a node is appended.
  Shape shape(ValueId id) const { return graph_.value(id).shape; }
  DType dtype(ValueId id) const { return graph_.value(id).dtype; }

 private:
  Graph& graph_;
  const TypeRules& rules_;
  Phase phase_ = Phase::kForward;
  std::string origin_;
};

}  // namespace gradloom

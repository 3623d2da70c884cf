#include "compiler/graph/builder.h"

#include <numeric>
#include <utility>

namespace gradloom {

std::vector<ValueId> GraphBuilder::Ops(const std::string& op, std::string_view domain, std::vector<ValueId> inputs, int num_outputs,
                                       Attributes attributes) {
  Node node;
  node.op = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.outputs.assign(static_cast<size_t>(num_outputs), kNoValue);
  node.attributes = std::move(attributes);
  node.phase = phase_;
  node.origin = origin_;
  const std::vector<ValueType> types = rules_.Infer(graph_, node);
  const Role role = phase_ == Phase::kBackward ? Role::kGradient : Role::kActivation;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    node.outputs[i] = graph_.AddValue(origin_.empty() ? op : origin_ + "/" + op, types[i].dtype, types[i].shape, role);
  }
  return graph_.AddNode(std::move(node)).outputs;
}

ValueId GraphBuilder::Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) {
  return Ops(op, "", std::move(inputs), 1, std::move(attributes))[0];
}

ValueId GraphBuilder::Own(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) {
  return Ops(op, kGradloomDomain, std::move(inputs), 1, std::move(attributes))[0];
}

ValueId GraphBuilder::Constant(Tensor data, const std::string& name) {
  const ValueId id = graph_.AddData(name, std::move(data), Role::kConst);
  graph_.value(id).derived = true;
  return id;
}

ValueId GraphBuilder::Ints(const std::vector<int64_t>& values) {
  return Constant(Tensor::From<int64_t>(values, Shape{static_cast<int64_t>(values.size())}));
}

ValueId GraphBuilder::Scalar(double value, DType dtype) { return Constant(Converted(Tensor::Scalar<double>(value).view(), dtype)); }

ValueId GraphBuilder::Zeros(const ValueType& type) { return Fill(type, 0.0); }

ValueId GraphBuilder::Fill(const ValueType& type, double value) { return Expand(Scalar(value, type.dtype), type.shape); }

ValueId GraphBuilder::Cast(ValueId a, DType to) {
  if (dtype(a) == to) return a;
  return Op("Cast", {a}, {{"to", static_cast<int64_t>(to)}});
}

ValueId GraphBuilder::Reshape(ValueId a, Shape to) {
  if (shape(a) == to) return a;
  // allowzero: a 0 in the target is an extent of 0, not "copy the extent of the input".
  return Op("Reshape", {a, Ints(to.dims())}, {{"allowzero", int64_t{1}}});
}

ValueId GraphBuilder::Transpose(ValueId a, const std::vector<int64_t>& perm) {
  std::vector<int64_t> identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (perm == identity) return a;
  return Op("Transpose", {a}, {{"perm", perm}});
}

ValueId GraphBuilder::Expand(ValueId a, Shape to) {
  if (shape(a) == to) return a;
  return Op("Expand", {a, Ints(to.dims())});
}

ValueId GraphBuilder::ReduceSum(ValueId a, std::vector<int64_t> axes, bool keepdims) {
  const int64_t keep = keepdims ? 1 : 0;
  if (axes.empty()) return Op("ReduceSum", {a}, {{"keepdims", keep}});
  return Op("ReduceSum", {a, Ints(axes)}, {{"keepdims", keep}});
}

ValueId GraphBuilder::ReduceTo(ValueId a, Shape to) {
  const Shape from = shape(a);
  if (from == to) return a;
  const int extra = from.rank() - to.rank();
  std::vector<int64_t> axes;
  for (int i = 0; i < from.rank(); ++i) {
    if (i < extra || (to[i - extra] == 1 && from[i] != 1)) axes.push_back(i);
  }
  if (axes.empty()) return Reshape(a, to);
  return Reshape(ReduceSum(a, axes, /*keepdims=*/true), to);
}

}  // namespace gradloom

#include "compiler/ops/own_types.h"

#include "runtime/base/error.h"
#include "runtime/base/number_text.h"

namespace gradloom {
namespace {

std::string InputName(int i) { return "input " + std::to_string(i); }

}  // namespace

ValueType InputType(const Graph& graph, const Node& node, int i) {
  if (!HasInput(node, i)) throw Error(ErrorCode::kArity, InputName(i) + " is missing", Describe(node));
  return graph.type(node.inputs[static_cast<size_t>(i)]);
}

void ExpectArity(const Node& node, int least, int most, int outputs) {
  const int n = static_cast<int>(node.inputs.size());
  if (n < least || n > most) {
    throw Error(ErrorCode::kArity,
                "got " + std::to_string(n) + " inputs, expected " + std::to_string(least) + " to " + std::to_string(most), Describe(node));
  }
  if (static_cast<int>(node.outputs.size()) > outputs) {
    throw Error(ErrorCode::kArity, "got " + std::to_string(node.outputs.size()) + " outputs, expected at most " + std::to_string(outputs),
                Describe(node));
  }
}

void ExpectInput(const Graph& graph, const Node& node, int i, const ValueType& type) {
  const ValueType got = InputType(graph, node, i);
  if (got == type) return;
  throw Error(got.dtype != type.dtype ? ErrorCode::kType : ErrorCode::kShape,
              InputName(i) + " is " + got.ToString() + ", expected " + type.ToString(), Describe(node));
}

void ExpectFloating(const Graph& graph, const Node& node, int i) {
  const ValueType got = InputType(graph, node, i);
  if (!IsFloating(got.dtype)) {
    throw Error(ErrorCode::kType, InputName(i) + " is " + got.ToString() + ", expected a floating-point type", Describe(node));
  }
}

void ExpectRank(const Graph& graph, const Node& node, int i, int rank) {
  const ValueType got = InputType(graph, node, i);
  if (got.shape.rank() != rank) {
    throw Error(ErrorCode::kShape, InputName(i) + " is " + got.ToString() + ", expected rank " + std::to_string(rank), Describe(node));
  }
}

void ExpectSeeds(const Graph& graph, const Node& node, int i) {
  ExpectInput(graph, node, i, {DType::kInt64, Shape{}});
  ExpectInput(graph, node, i + 1, {DType::kInt64, Shape{}});
  if (HasInput(node, i + 2)) ExpectInput(graph, node, i + 2, {DType::kInt64, Shape{}});
}

void ExpectRatio(const Node& node) {
  const double ratio = node.attributes.Float("ratio", 0);
  if (!(ratio >= 0 && ratio < 1))
    throw Error(ErrorCode::kValue, "attribute 'ratio' must be at least 0 and below 1, got " + NumberText(ratio), Describe(node));
}

std::vector<ValueType> InferLikeFirst(const Graph& graph, const Node& node) { return {InputType(graph, node, 0)}; }

std::vector<ValueType> InferCopy(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 1);
  return InferLikeFirst(graph, node);
}

std::vector<ValueType> OutputTypes(const Node& node, std::vector<ValueType> types) {
  types.resize(node.outputs.size());
  return types;
}

}  // namespace gradloom

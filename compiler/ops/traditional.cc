// Operators of ai.onnx.ml and ai.onnx.preview.training, and of text: they are piecewise constant, or updates that are never differentiated.
#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

constexpr std::string_view kMl = "ai.onnx.ml", kTraining = "ai.onnx.preview.training";

std::vector<ValueType> InferFeatures(const Graph& graph, const Node& node) {
  ValueType type = InputType(graph, node, 0);
  const int64_t columns = InputType(graph, node, 1).shape.elements();
  if (type.shape.rank() == 0) throw Error(ErrorCode::kShape, "the input of ArrayFeatureExtractor must have rank 1 or more", Describe(node));
  if (type.shape.rank() == 1) return {{type.dtype, Shape{1, columns}}};
  type.shape[type.shape.rank() - 1] = columns;
  return {type};
}

std::vector<ValueType> InferTrees(const Graph& graph, const Node& node) {
  ExpectRank(graph, node, 0, 2);
  const ValueType x = InputType(graph, node, 0);
  const Attributes& a = node.attributes;
  if (a.Int("post_transform", 0) != 0)
    throw Error(ErrorCode::kUnsupported, "attribute 'post_transform' of TreeEnsemble is not supported", Describe(node));
  const int64_t targets = a.Int("n_targets", 0);
  const bool fits = targets > 0 && a.Ints("leaf_targetids").size() == static_cast<size_t>(a.TensorOf("leaf_weights").elements());
  if (!fits) throw Error(ErrorCode::kAttr, "the leaves of TreeEnsemble do not match its targets", Describe(node));
  return {{x.dtype, Shape{x.shape[0], targets}}};
}

std::vector<ValueType> InferCounts(const Graph& graph, const Node& node) {
  const Shape x = InputType(graph, node, 0).shape;
  const Attributes& a = node.attributes;
  const std::vector<int64_t> places = a.Ints("ngram_indexes");
  if (!a.has("pool_int64s")) throw Error(ErrorCode::kUnsupported, "TfIdfVectorizer with strings is not supported", Describe(node));
  if (x.rank() > 2)
    throw Error(ErrorCode::kShape, "the input of TfIdfVectorizer must have rank 1 or 2, got " + x.ToString(), Describe(node));
  // The pool's parts define the number of n-grams, each of which needs an index.
  const std::vector<int64_t> counts = a.Ints("ngram_counts");
  int64_t grams = 0, last = static_cast<int64_t>(a.Ints("pool_int64s").size());
  for (size_t n = counts.size(); n-- > 0; last = counts[n]) {
    if (counts[n] < 0 || counts[n] > last)
      throw Error(ErrorCode::kAttr, "attribute 'ngram_counts' must hold positions in the pool", Describe(node));
    grams += (last - counts[n]) / static_cast<int64_t>(n + 1);
  }
  const auto size = static_cast<int64_t>(places.size());
  if (places.empty() || size < grams || *std::min_element(places.begin(), places.end()) < 0)
    throw Error(ErrorCode::kAttr, "ngram_indexes of " + std::to_string(size) + " places for " + std::to_string(grams) + " n-grams",
                Describe(node));
  const int64_t width = *std::max_element(places.begin(), places.end()) + 1;
  const auto weights = static_cast<int64_t>(a.Floats("weights").size());
  if (weights != 0 && weights < width) throw Error(ErrorCode::kAttr, "TfIdfVectorizer has too few weights", Describe(node));
  return {{DType::kFloat32, x.rank() == 2 ? Shape{x[0], width} : Shape{width}}};
}

// Operands: R, T, X..., G..., states of each X...; outputs: X..., states....
template <int kStates>
std::vector<ValueType> InferUpdate(const Graph& graph, const Node& node) {
  const size_t each = 2 + kStates, inputs = node.inputs.size();
  if (inputs < 2 + each || (inputs - 2) % each != 0 || node.outputs.size() > (inputs - 2) / each * (1 + kStates))
    throw Error(ErrorCode::kArity,
                "operator '" + Escaped(node.op) + "' does not take " + std::to_string(inputs) + " inputs and " +
                    std::to_string(node.outputs.size()) + " outputs",
                Describe(node));
  const size_t count = (inputs - 2) / each;
  std::vector<ValueType> types;
  for (size_t k = 0; k < count; ++k) {
    const ValueType x = InputType(graph, node, static_cast<int>(2 + k));
    for (size_t part = 1; part < each; ++part) {
      const int other = static_cast<int>(2 + part * count + k);
      if (InputType(graph, node, other).shape != x.shape) ExpectInput(graph, node, other, x);
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    // Outputs have no counterpart for the gradients.
    const size_t part = i / count == 0 ? 0 : i / count + 1;
    types.push_back(InputType(graph, node, static_cast<int>(2 + part * count + i % count)));
  }
  for (int i = 0; i < 2; ++i) {
    if (InputType(graph, node, i).shape.elements() != 1)
      throw Error(ErrorCode::kShape, "the learning rate and the step of an update must be scalars", Describe(node));
  }
  return types;
}

const Op kOps[] = {
    {.name = "Adagrad", .domain = kTraining, .traits = kNoGradient, .infer = InferUpdate<1>},
    {.name = "Adam", .domain = kTraining, .traits = kNoGradient, .infer = InferUpdate<2>},
    {.name = "Momentum", .domain = kTraining, .traits = kNoGradient, .infer = InferUpdate<1>},
    {.name = "ArrayFeatureExtractor", .domain = kMl, .traits = kNoGradient, .infer = InferFeatures},
    {.name = "Binarizer", .domain = kMl, .traits = kPointwise | kNoGradient, .infer = InferLikeFirst},
    {.name = "TfIdfVectorizer", .domain = "", .since_version = 9, .traits = kNoGradient, .infer = InferCounts},
    {.name = "TreeEnsemble", .domain = kMl, .since_version = 5, .traits = kNoGradient, .infer = InferTrees, .samples = "0>0"},
};

}  // namespace

std::span<const Op> TraditionalOps() { return kOps; }

}  // namespace gradloom

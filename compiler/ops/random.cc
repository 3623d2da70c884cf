// Random tensors. compiler/passes/seed_random turns ONNX's operators into ours, whose numbers depend on the seed, the batch number and the
// node's origin.
//
//   gradloom.RandomUniform(seed int64[], batch int64[], first int64[]?) {dtype, shape, low, high, origin, samples} -> [shape]
//   gradloom.RandomNormal(seed, batch, first?) {dtype, shape, mean, scale, origin, samples} -> [shape]
//   gradloom.Bernoulli(p, seed, batch, first?) {dtype, origin, samples} -> as p
//   gradloom.Multinomial(scores [N,C], seed, batch, first?) {dtype, sample_size, origin, samples} -> [N, sample_size]
//
// If a batch is divided over devices, `first` is the device's first sample, and `samples` says where its elements are in the tensor of the
// whole batch (kernels/catalog/batch_slice.h): an element gets the same number on any number of devices.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

void ExpectLastSeeds(const Graph& graph, const Node& node, int first) {
  ExpectArity(node, first + 2, first + 3, 1);
  ExpectSeeds(graph, node, first);
}

DType DTypeAttribute(const Node& node, DType absent) {
  return static_cast<DType>(node.attributes.Int("dtype", static_cast<int64_t>(absent)));
}

std::vector<ValueType> InferRandom(const Graph& graph, const Node& node) {
  ExpectLastSeeds(graph, node, 0);
  const DType dtype = DTypeAttribute(node, DType::kFloat32);
  if (!IsFloating(dtype))
    throw Error(ErrorCode::kType, "random numbers must have a floating-point type, got " + std::string(DTypeName(dtype)), Describe(node));
  return {{dtype, Shape(node.attributes.Ints("shape"))}};
}

std::vector<ValueType> BernoulliTypes(const Graph& graph, const Node& node) {
  ExpectLastSeeds(graph, node, 1);
  ExpectFloating(graph, node, 0);
  const ValueType p = InputType(graph, node, 0);
  return {{DTypeAttribute(node, p.dtype), p.shape}};
}

std::vector<ValueType> MultinomialTypes(const Graph& graph, const Node& node) {
  ExpectLastSeeds(graph, node, 1);
  ExpectFloating(graph, node, 0);
  ExpectRank(graph, node, 0, 2);
  const Shape scores = InputType(graph, node, 0).shape;
  const int64_t samples = node.attributes.Int("sample_size", 1);
  if (scores[1] < 1 || samples < 0)
    throw Error(ErrorCode::kAttr, "cannot draw " + std::to_string(samples) + " samples from " + scores.ToString(), Describe(node));
  return {{DTypeAttribute(node, DType::kInt32), Shape{scores[0], samples}}};
}

constexpr uint32_t kRandomTraits = kRandom | kNoGradient;

constexpr Op kOps[] = {
    {.name = "RandomUniform", .domain = kGradloomDomain, .traits = kRandomTraits, .infer = InferRandom, .shard = ShardGrowing},
    {.name = "RandomNormal", .domain = kGradloomDomain, .traits = kRandomTraits, .infer = InferRandom, .shard = ShardGrowing},
    {.name = "Bernoulli", .domain = kGradloomDomain, .traits = kRandomTraits, .infer = BernoulliTypes, .shard = ShardPointwise},
    {.name = "Multinomial", .domain = kGradloomDomain, .traits = kRandomTraits, .infer = MultinomialTypes, .samples = "0.>0"},
    {.name = "RandomUniform", .domain = "", .traits = kRandomTraits},
    {.name = "RandomUniformLike", .domain = "", .traits = kRandomTraits},
    {.name = "RandomNormal", .domain = "", .traits = kRandomTraits},
    {.name = "RandomNormalLike", .domain = "", .traits = kRandomTraits},
    {.name = "Bernoulli", .domain = "", .since_version = 15, .traits = kRandomTraits},
    {.name = "Multinomial", .domain = "", .since_version = 7, .traits = kRandomTraits},
};

}  // namespace

std::span<const Op> RandomOps() { return kOps; }

}  // namespace gradloom

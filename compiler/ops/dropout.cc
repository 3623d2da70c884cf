// gradloom.Dropout(x, seed int64[], batch int64[], first int64[]?) {ratio, origin, samples} -> (y, mask bool?)
//
// Element i is kept if the uniform random number for its position in the tensor of the whole batch, under NodeKey(seed, batch, origin), is
// at least ratio; it is then scaled by 1 / (1 - ratio). `first` and `samples` are as in random.cc. The operator is linear in x for a given
// mask, so its gradient is the same operator applied to the gradient: the mask is drawn again and never stored.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

void DropoutGradient(GradientContext& c) {
  if (c.needs(0)) c.set(0, c.b.Own("Dropout", {c.grad(0), c.in(1), c.in(2), c.in(3)}, c.attributes()));
}

std::vector<ValueType> InferDropout(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, 4, 2);
  ExpectSeeds(graph, node, 1);
  ExpectRatio(node);
  const ValueType x = InputType(graph, node, 0);
  std::vector<ValueType> types{x};
  if (node.outputs.size() > 1) types.push_back({DType::kBool, x.shape});
  return types;
}

const Op kOps[] = {
    {.name = "Dropout",
     .domain = kGradloomDomain,
     .traits = kRandom,
     .gradient = DropoutGradient,
     .infer = InferDropout,
     .shard = ShardPointwise},
};

}  // namespace

std::span<const Op> DropoutOps() { return kOps; }

}  // namespace gradloom

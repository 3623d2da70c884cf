// Collectives and transfers: created by replicate_data, shard_updates and place_devices, after differentiation.
//
//   gradloom.AllReduce(x...) {states, tag} -> (y...): sums over the devices that share a batch, with the same bits on each, in one
//     collective. `states`, by operand: the name of the parameter whose gradient this is, in whose layout it is sent; "" for anything else,
//     which is sent in row-major order. `tag`: a number that is equal on all devices and different for each collective.
//   gradloom.Reduce(x...) {roots, states, tag} -> (y...): the same sums, each for one device: `roots`, by operand, are indices into the
//     devices that share a batch. The other devices do not have y.
//   gradloom.Broadcast(x) {root, states, tag} -> (y): the x of the device `root`, an index into the devices that share a batch, on each of
//     them. `states`: the name of the parameter whose next value this is, in whose layout it is sent. What the other devices give as x is
//     not used.
//   gradloom.Send(x) {peer, tag} -> (): sends x to the device in slot `peer`, which has a matching Recv.
//   gradloom.Recv() {peer, tag, dtype, shape} -> (y): the value that the device sends.
//   gradloom.GatherSamples(x) {axis, outer} -> (y), gradloom.ScatterSamples(x) {axis, outer} -> (y): the identity over the whole batch. If
//     devices share the batch, they give all samples of x on the device with the tail of the model, and a device's part of that device's
//     samples. `outer`: how many times all samples follow each other along the axis. They become transfers in gather_tail.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferAllReduce(const Graph& graph, const Node& node) {
  const auto operands = static_cast<int>(node.inputs.size());
  ExpectArity(node, 1, operands, operands);
  std::vector<ValueType> types;
  for (int i = 0; i < operands; ++i) types.push_back(InputType(graph, node, i));
  return OutputTypes(node, std::move(types));
}

std::vector<ValueType> InferSend(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 0);
  InputType(graph, node, 0);
  return {};
}

std::vector<ValueType> InferRecv(const Graph&, const Node& node) {
  ExpectArity(node, 0, 0, 1);
  return OutputTypes(node, {{static_cast<DType>(node.attributes.Int("dtype", 0)), Shape(node.attributes.Ints("shape"))}});
}

void ShardGathered(ShardQuery& query) {
  query.in(0);
  query.set(0, Shard::Whole());
}

constexpr Op kOps[] = {
    {.name = "AllReduce", .domain = kGradloomDomain, .traits = kCollective, .infer = InferAllReduce},
    {.name = "Reduce", .domain = kGradloomDomain, .traits = kCollective, .infer = InferAllReduce},
    {.name = "Broadcast", .domain = kGradloomDomain, .traits = kCollective, .infer = InferCopy},
    {.name = "Send", .domain = kGradloomDomain, .traits = kCollective, .infer = InferSend},
    {.name = "Recv", .domain = kGradloomDomain, .traits = kCollective, .infer = InferRecv},
    {.name = "GatherSamples", .domain = kGradloomDomain, .traits = kCollective, .infer = InferCopy, .shard = ShardGathered},
    {.name = "ScatterSamples", .domain = kGradloomDomain, .traits = kCollective, .infer = InferCopy, .shard = ShardGrowing}};

}  // namespace

std::span<const Op> CollectiveOps() { return kOps; }

}  // namespace gradloom

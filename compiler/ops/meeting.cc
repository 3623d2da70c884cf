// What devices do together: made by replicate_data, after gradients.
//
//   gradloom.AllReduce(x) {state} -> y: the sum of x over the devices that share a batch, the same bits on each. `state`: the
//     name of the parameter whose gradient this is, in whose layout it travels; "" for anything else, which travels plain.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferAllReduce(const Graph& graph, const Node& node) {
  ExpectArity(node, 1, 1, 1);
  return {InputType(graph, node, 0)};
}

constexpr Op kOps[] = {{.name = "AllReduce", .domain = kGradloomDomain, .traits = kMeeting, .infer = InferAllReduce}};

}  // namespace

std::span<const Op> MeetingOps() { return kOps; }

}  // namespace gradloom

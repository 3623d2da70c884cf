// What devices do together: made by replicate_data, after gradients.
//
//   gradloom.AllReduce(x...) {states} -> (y...): sums over the devices that share a batch, the same bits on each, in one meeting.
//     `states`, by operand: the name of the parameter whose gradient this is, in whose layout it travels; "" for anything else,
//     which travels plain.
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferAllReduce(const Graph& graph, const Node& node) {
  const auto operands = static_cast<int>(node.inputs.size());
  ExpectArity(node, 1, operands, operands);
  std::vector<ValueType> types;
  for (int i = 0; i < operands; ++i) types.push_back(InputType(graph, node, i));
  return OutputTypes(node, std::move(types));
}

constexpr Op kOps[] = {{.name = "AllReduce", .domain = kGradloomDomain, .traits = kMeeting, .infer = InferAllReduce}};

}  // namespace

std::span<const Op> MeetingOps() { return kOps; }

}  // namespace gradloom

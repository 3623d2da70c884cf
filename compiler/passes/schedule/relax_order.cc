#include "compiler/passes/schedule/relax_order.h"

#include <algorithm>
#include <string_view>

namespace gradloom {
namespace {

constexpr std::string_view kGradients[] = {"AttentionGrad", "ConvGradInput", "ConvGradWeight"};

}  // namespace

void RelaxOrder(Graph& graph) {
  for (Node& node : graph.nodes) {
    const bool relaxed =
        node.domain == kGradloomDomain && std::find(std::begin(kGradients), std::end(kGradients), node.op) != std::end(kGradients);
    if (relaxed) node.attributes.set("deterministic", int64_t{0});
  }
}

}  // namespace gradloom

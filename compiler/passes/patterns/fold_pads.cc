#include "compiler/passes/patterns/fold_pads.h"

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/constants.h"

namespace gradloom {
namespace {

bool PadsZeros(const Graph& graph, const Node& pad) {
  if (pad.attributes.String("mode", "constant") != "constant") return false;
  return pad.inputs.size() <= 2 || pad.inputs[2] == kNoValue || UniformConstant(graph, pad.inputs[2]) == 0.0;
}

// Returns the zeros before and after each spatial axis in the order of a convolution's pads; nullopt if anything else is padded, or
// elements are cut off.
std::optional<std::vector<int64_t>> SpatialPads(const Graph& graph, const Node& pad) {
  const int rank = graph.value(pad.inputs[0]).shape.rank();
  const auto pads = ConstantInts(graph, pad, 1);
  auto axes = ConstantInts(graph, pad, 3);
  if (pad.inputs.size() <= 3 || pad.inputs[3] == kNoValue) {
    axes.emplace(static_cast<size_t>(rank));
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (!pads || !axes || rank < 3 || pads->size() != 2 * axes->size()) return std::nullopt;
  const size_t spatial = static_cast<size_t>(rank) - 2, n = axes->size();
  std::vector<int64_t> result(2 * spatial, 0);
  for (size_t i = 0; i < n; ++i) {
    const auto axis = NormalAxis((*axes)[i], rank);
    const int64_t before = (*pads)[i], after = (*pads)[n + i];
    if (!axis || before < 0 || after < 0) return std::nullopt;
    if (*axis >= 2) {
      result[static_cast<size_t>(*axis) - 2] += before;
      result[spatial + static_cast<size_t>(*axis) - 2] += after;
    } else if (before != 0 || after != 0) {
      return std::nullopt;
    }
  }
  return result;
}

bool TakesPads(const Node& convolution, const std::vector<int64_t>& pads) {
  const std::string mode = convolution.attributes.String("auto_pad", "NOTSET");
  const std::vector<int64_t> own = convolution.attributes.Ints("pads");
  return (mode == "NOTSET" || (mode == "VALID" && own.empty())) && (own.empty() || own.size() == pads.size());
}

}  // namespace

void FoldPads(Graph& graph) {
  const Uses uses(graph);
  for (Node& node : graph.nodes) {
    if (node.op != "Conv" || !node.domain.empty()) continue;
    const Node* const producer = uses.ProducingNode(graph, node.inputs[0]);
    if (producer == nullptr) continue;
    const Node& pad = *producer;
    if (pad.op != "Pad" || !pad.domain.empty() || !PadsZeros(graph, pad)) continue;
    const auto pads = SpatialPads(graph, pad);
    if (!pads || !TakesPads(node, *pads)) continue;
    std::vector<int64_t> all = node.attributes.Ints("pads", std::vector<int64_t>(pads->size(), 0));
    for (size_t i = 0; i < all.size(); ++i) all[i] += (*pads)[i];
    node.attributes.set("auto_pad", std::string("NOTSET"));
    node.attributes.set("pads", all);
    node.inputs[0] = pad.inputs[0];
  }
}

}  // namespace gradloom

// Changes of layout: inserted by assign_layouts, after differentiation.
//
//   gradloom.Reorder(x) -> y: the same tensor; the plan gives both values their layouts
#include "compiler/ops/families.h"
#include "compiler/ops/own_types.h"

namespace gradloom {
namespace {

std::vector<ValueType> InferReorder(const Graph& graph, const Node& node) { return {InputType(graph, node, 0)}; }

const Op kOps[] = {{.name = "Reorder", .domain = kGradloomDomain, .infer = InferReorder}};

}  // namespace

std::span<const Op> ReorderOps() { return kOps; }

}  // namespace gradloom

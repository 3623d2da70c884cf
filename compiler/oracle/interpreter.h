// The oracle: walks a graph with reference kernels, one fresh tensor per value. No plan, no streams, no
// reuse of memory: what every pass and every plan must agree with.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// The values `wanted` of a graph whose inputs are `feeds`. Parameters, states and constants start from
// the graph's data unless they are fed too. Throws Error(kUnsupported) where an operator has no reference
// kernel, Error(kInternal) where an input is missing or a kernel's call does not fit its types.
std::vector<Tensor> Interpret(const Graph& graph, const std::map<ValueId, Tensor>& feeds, std::span<const ValueId> wanted);

// The same graph with float64 in place of float32 everywhere: values, data, Cast targets and dtype
// attributes. Interpreting both tells how far rounding alone moves a result.
std::unique_ptr<Graph> InDouble(const Graph& graph);

}  // namespace gradloom

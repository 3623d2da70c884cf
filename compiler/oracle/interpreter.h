// The oracle: evaluates a graph with reference kernels and a new tensor for each value, without a plan, streams or reuse of memory. The
// results of every pass and every plan are compared with it.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// Computes the values `wanted` of a graph with the inputs `feeds`. Parameters, states and constants have the graph's data unless they are
// fed too. Throws Error(kUnsupported) if an operator has no reference kernel, and Error(kInternal) if an input is missing or a kernel's
// call does not match its types.
std::vector<Tensor> Interpret(const Graph& graph, const std::map<ValueId, Tensor>& feeds, std::span<const ValueId> wanted);

// The same graph with float64 instead of float32 everywhere: values, data, targets of Cast and dtype attributes. The difference between the
// results of both graphs shows how far rounding alone changes a result.
std::unique_ptr<Graph> InDouble(const Graph& graph);

}  // namespace gradloom

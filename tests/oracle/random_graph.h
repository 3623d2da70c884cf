// Random training graphs, on which passes, kernels and executors are compared.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

struct RandomGraph {
  std::unique_ptr<Graph> graph;
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> parameters;
  ValueId loss = kNoValue;
};

// A graph of about `num_nodes` forward operators over two inputs and a few parameters: pointwise operators with broadcasting, matrix
// products, reductions, reshapes, transposes, concatenations, slices and gathers, in float32. Values are kept near 1, so that no operator
// overflows. The same seed gives the same graph.
RandomGraph MakeRandomGraph(uint64_t seed, int num_nodes, const TypeRules& rules);

}  // namespace gradloom

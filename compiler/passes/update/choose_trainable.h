// Chooses which initializers of a model are trained.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

struct TrainableOptions {
  std::vector<std::string> trainable;            // patterns: trained in any case; these take precedence
  std::vector<std::string> freeze;               // patterns: not trained
  std::optional<std::vector<std::string>> only;  // exactly these names, without the analysis
  // Tensors in nodes of the file. They are not trained if an initializer is, since the exporter then kept the weights in initializers.
  std::set<std::string> node_constants;
  // Initializers that are named like attributes of a module are attributes, not numbers in the code.
  bool attributes = false;
};

struct TrainableChoice {
  std::vector<ValueId> parameters;  // in the order of the graph's values
  // Names with reasons, for messages.
  std::vector<std::pair<std::string, std::string>> trained;
  std::vector<std::pair<std::string, std::string>> frozen;
};

// Chooses among the floating-point constants of a freshly imported graph and gives the chosen ones role kParam.
//
// A constant is trained if it acts as a weight on a value that depends on the input, directly or through operators over constants only
// (Transpose, Reshape, a weight norm ...), and reaches an output differentiably: filters, matrices, biases, scales of normalizations,
// tables, recurrent weights. These are not trained: running statistics, also of normalizations that are written out; the mean and deviation
// by which a model normalizes its data; masks (0 and 1 in a product, 0 and large negative numbers in a sum); tables of sines and cosines
// and what they are computed from; tensors that the exporter made from numbers in the code; single numbers except the bias of a layer with
// one feature; bounds and exponents (except those known to be attributes of the module); filters of ones (an average that JAX writes).
// Throws Error(kConfig) for a name or pattern that matches no initializer.
TrainableChoice ChooseTrainable(Graph& graph, const TrainableOptions& options);

}  // namespace gradloom

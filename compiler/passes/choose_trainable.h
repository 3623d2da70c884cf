// Which initializers of a model are trained.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

struct TrainableOptions {
  std::vector<std::string> trainable;            // patterns: trained also where the analysis would not; they win
  std::vector<std::string> freeze;               // patterns: not trained
  std::optional<std::vector<std::string>> only;  // exactly these names; the analysis is not asked
  // Tensors that nodes of the file hold. They are not trained where an initializer is: the exporter then kept the weights there.
  std::set<std::string> node_constants;
  // Initializers that are called as attributes of a module are such, and no numbers in the code.
  bool attributes = false;
};

struct TrainableChoice {
  std::vector<ValueId> parameters;  // in the order of the graph's values
  // Names with reasons, for people.
  std::vector<std::pair<std::string, std::string>> trained;
  std::vector<std::pair<std::string, std::string>> frozen;
};

// Chooses among the floating constants of a freshly imported graph and gives the chosen ones role kParam.
//
// Trained is what acts as a weight on a value that depends on the input, directly or through operators over
// constants alone (Transpose, Reshape, a weight norm ...), and reaches an output differentiably: filters,
// matrices, biases, scales of normalizations, tables, recurrent weights. Not trained: running statistics, also of
// normalizations that are written out, and the mean and deviation by which a model normalizes its data; masks (0 and 1 in a product, 0 and
// large negative numbers in a sum), tables of sines and cosines and what they are computed from, tensors that the exporter made of numbers
// in the code, single numbers but for the bias of a layer with one feature, bounds and exponents (but for what is known to be an attribute
// of the module), filters of ones (an average that JAX writes). Throws Error(kConfig) for a name or pattern that fits no initializer.
TrainableChoice ChooseTrainable(Graph& graph, const TrainableOptions& options);

}  // namespace gradloom

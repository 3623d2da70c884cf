// Surrogate gradients: derivatives in place of those of step functions, which are zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace gradloom {

// Spiking networks and binary layers compute a step and its gradient as if it were something smooth. That gradient is the backward() of an
// autograd function in the module's code, which no exporter writes. So a step is a step in the file, and nothing before it learns.
enum class SurrogateKind : uint8_t {
  kAtan,             // k / 2 / (1 + (pi k x / 2)^2)
  kFastSigmoid,      // 1 / (1 + k |x|)^2
  kSigmoid,          // k s (1 - s) with s = sigmoid(k x)
  kStraightThrough,  // 1; also that of Sign, Round, Floor and Ceil
};

struct Surrogate {
  SurrogateKind kind = SurrogateKind::kAtan;
  double slope = 1;           // k
  std::string pattern = "*";  // over the names of nodes, and of the values that they make
};

// Gives each step of a value that depends on a floating-point tensor of the file the gradient of the first surrogate whose pattern matches.
// A step is a comparison of floating-point values that is converted to a number (Cast, or a Where between two numbers); x is the difference
// of the compared values, positive where the result is larger. Values do not change. Bodies of branches and loops are included. Returns how
// many steps each surrogate was given to.
std::vector<int64_t> PassSurrogates(GraphBuilder& builder, const std::vector<Surrogate>& surrogates);

// The names of the values that are such steps, those of Sign, Round, Floor and Ceil included.
std::vector<std::string> StepNames(const Graph& graph);

}  // namespace gradloom

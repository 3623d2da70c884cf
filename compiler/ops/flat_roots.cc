#include "compiler/ops/flat_roots.h"

#include <cmath>
#include <compare>
#include <set>

#include "compiler/graph/constants.h"
#include "compiler/ops/op.h"

namespace gradloom {
namespace {

// What a value must be.
enum class Wanted {
  kFlatRoot,  // what RootIsFlatAtZero says
  kPower,     // non-negative, with a slope of 0 where it is 0
  kAbsolute,  // an absolute value
  kSquare,    // the square of `base`
};

struct Demand {
  ValueId id;
  Wanted wanted;
  ValueId base = kNoValue;
  auto operator<=>(const Demand&) const = default;
};
using Demands = std::set<Demand>;

// Whether the value is another one with negative elements replaced by 0: a square of a distance from x^2 + y^2 - 2xy, which rounding may
// make negative.
bool IsClampedAtZero(const Graph& graph, const Node& node) {
  const auto zero = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue && UniformConstant(graph, node.inputs[i]) == 0.0;
  };
  if (node.op == "Max") return node.inputs.size() == 2 && (zero(0) || zero(1));
  return node.op == "Relu" || (node.op == "Clip" && zero(1));
}

// The following return false if the node's result cannot be what is wanted. It is, if its operands are what they add to `open`.

bool MayBePower(const Graph& graph, const Node& node, Demands& open) {
  if (node.op == "Mul") {
    if (node.inputs[0] == node.inputs[1]) return true;
    // A cube is written as the product of a square and its base (simplify.cc).
    open.insert({node.inputs[0], Wanted::kSquare, node.inputs[1]});
    open.insert({node.inputs[1], Wanted::kAbsolute});
    return true;
  }
  if (node.op != "Pow") return false;
  const auto exponent = UniformConstant(graph, node.inputs[1]);
  if (!exponent || *exponent <= 1) return false;
  if (std::fmod(*exponent, 2.0) != 0) open.insert({node.inputs[0], Wanted::kAbsolute});
  return true;
}

bool MayHaveFlatRoot(const Graph& graph, const Node& node, Demands& open) {
  if (node.op == "ReduceSumSquare" || IsClampedAtZero(graph, node)) return true;
  if (node.op == "ReduceSum" || node.op == "ReduceMean") {
    open.insert({node.inputs[0], Wanted::kPower});
    return true;
  }
  if (node.op == "Mul" || node.op == "Div") {
    const bool first = ConstantData(graph, node.inputs[1]) != nullptr;
    const bool scaled = first || (node.op == "Mul" && ConstantData(graph, node.inputs[0]) != nullptr);
    if (!scaled && node.op == "Div") return false;
    // Matches the product of the norms of two vectors, the divisor of a cosine.
    if (!scaled) open.insert({node.inputs[0], Wanted::kFlatRoot});
    open.insert({node.inputs[first ? 0 : 1], Wanted::kFlatRoot});
    return true;
  }
  if (!KeepsElements(node)) return false;
  open.insert({node.inputs[0], Wanted::kFlatRoot});
  return true;
}

bool MayBe(const Demand& demand, const Graph& graph, const Node& node, Demands& open) {
  if (!node.domain.empty()) return false;
  switch (demand.wanted) {
    case Wanted::kFlatRoot: return MayHaveFlatRoot(graph, node, open);
    case Wanted::kPower: return MayBePower(graph, node, open);
    case Wanted::kAbsolute: return node.op == "Abs";
    case Wanted::kSquare: return node.op == "Mul" && node.inputs[0] == demand.base && node.inputs[1] == demand.base;
  }
  return false;
}

}  // namespace

// All demands must hold, and nodes come after those that produce their operands. So one pass from the last node to the first decides, even
// if a value is used many times.
bool RootIsFlatAtZero(const Graph& graph, ValueId id) {
  Demands open{{id, Wanted::kFlatRoot}};
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend() && !open.empty(); ++node) {
    for (ValueId output : node->outputs) {
      for (auto at = open.lower_bound({output, Wanted::kFlatRoot}); at != open.end() && at->id == output;
           at = open.lower_bound({output, Wanted::kFlatRoot})) {
        const Demand demand = *at;
        open.erase(at);
        if (!MayBe(demand, graph, *node, open)) return false;
      }
    }
  }
  return open.empty();
}

}  // namespace gradloom

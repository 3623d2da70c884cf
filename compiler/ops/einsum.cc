// Einsum. The gradient of an operand is an Einsum of the output's gradient and the other operands.
#include "runtime/base/einsum.h"

#include <algorithm>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using Term = EinsumEquation::Term;

EinsumEquation EquationOf(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (ValueId id : node.inputs) shapes.push_back(graph.value(id).shape);
  return EinsumEquation::Parse(node.attributes.String("equation", ""), shapes);
}

bool Contains(const Term& term, int index) { return std::find(term.begin(), term.end(), index) != term.end(); }

// Writes terms with one letter for each index.
class Letters {
 public:
  std::string Text(const Term& term) {
    std::string text;
    for (int index : term) {
      const auto [at, fresh] = letters_.try_emplace(index, ' ');
      if (fresh) at->second = Next();
      text += at->second;
    }
    return text;
  }

 private:
  char Next() {
    static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (letters_.size() > kAlphabet.size()) throw Error(ErrorCode::kUnsupported, "the gradient of this Einsum needs more than 52 indices");
    return kAlphabet[letters_.size() - 1];
  }
  std::map<int, char> letters_;
};

Tensor Ones(int64_t n) { return Tensor::From<double>(std::vector<double>(static_cast<size_t>(n), 1.0), {n}); }

Tensor Identity(int64_t n) {
  Tensor eye(DType::kFloat64, {n, n});
  for (int64_t i = 0; i < n; ++i) eye.as<double>()[static_cast<size_t>(i * (n + 1))] = 1.0;
  return eye;
}

// Operands and terms of the Einsum that computes the gradient of one operand.
struct Adjoint {
  std::vector<ValueId> operands;
  std::vector<Term> terms;
  Term target;
};

// Whether an operand has the index with this extent: operands that are broadcast along it do not define its extent.
bool HasExtent(const GraphBuilder& b, const Adjoint& adjoint, int index, int64_t extent) {
  for (size_t i = 0; i < adjoint.terms.size(); ++i) {
    const Term& term = adjoint.terms[i];
    const auto at = std::find(term.begin(), term.end(), index);
    if (at != term.end() && b.shape(adjoint.operands[i])[static_cast<int>(at - term.begin())] == extent) return true;
  }
  return false;
}

// An index that only this operand has was summed: its gradient is repeated by a vector of ones. A repeated index in the operand read the
// diagonal: its gradient is placed there by an identity matrix.
Adjoint AdjointOf(GradientContext& c, const EinsumEquation& equation, int operand) {
  GraphBuilder& b = c.b;
  const Term& own = equation.inputs[static_cast<size_t>(operand)];
  const Shape shape = b.shape(c.in(operand));
  const DType dtype = b.dtype(c.in(operand));
  Adjoint adjoint{{c.grad(0)}, {equation.output}, {}};
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (i == operand) continue;
    adjoint.operands.push_back(c.in(i));
    adjoint.terms.push_back(equation.inputs[static_cast<size_t>(i)]);
  }
  int fresh = 1 << 20;
  for (size_t axis = 0; axis < own.size(); ++axis) {
    const int index = own[axis];
    const int64_t extent = shape[static_cast<int>(axis)];
    if (Contains(adjoint.target, index)) {
      adjoint.target.push_back(++fresh);
      adjoint.operands.push_back(b.Constant(Converted(Identity(extent).view(), dtype)));
      adjoint.terms.push_back({index, fresh});
      continue;
    }
    adjoint.target.push_back(index);
    if (HasExtent(b, adjoint, index, extent)) continue;
    adjoint.operands.push_back(b.Constant(Converted(Ones(extent).view(), dtype)));
    adjoint.terms.push_back({index});
  }
  return adjoint;
}

void EinsumGradient(GradientContext& c) {
  const EinsumEquation equation = EquationOf(c.b.graph(), c.node());
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.needs(i)) continue;
    const Adjoint adjoint = AdjointOf(c, equation, i);
    Letters letters;
    std::string text;
    for (const Term& term : adjoint.terms) text += (text.empty() && &term == &adjoint.terms[0] ? "" : ",") + letters.Text(term);
    c.set_reduced(i, c.b.Op("Einsum", adjoint.operands, {{"equation", text + "->" + letters.Text(adjoint.target)}}));
  }
}

std::vector<ValueType> InferEinsum(const Graph& graph, const Node& node) {
  return {{graph.value(node.inputs.at(0)).dtype, EquationOf(graph, node).OutputShape()}};
}

// One flop per operand and combination of all indices.
Cost EinsumCost(const Graph& graph, const Node& node) {
  double combinations = 1;
  for (const auto& [index, extent] : EquationOf(graph, node).extents) combinations *= static_cast<double>(extent);
  return CostWithFlops(graph, node, combinations * static_cast<double>(std::max<size_t>(node.inputs.size(), 1)));
}

void ShardEinsum(ShardQuery& query) {
  int partial = 0;
  for (int i = 0; i < query.num_inputs(); ++i) partial += query.given(i).partial() ? 1 : 0;
  std::vector<Shape> shapes;
  Shard made;
  for (int i = 0; i < query.num_inputs(); ++i) shapes.push_back(query.shape(i));
  const EinsumEquation equation = EinsumEquation::Parse(query.attributes().String("equation", ""), shapes);
  // Finds the index of the batch, and checks that all operands with that index are divided.
  const Term* term = nullptr;
  int index = 0;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.given(i).partial() && partial == 1) continue;
    const Shard shard = query.in(i);
    if (!shard.split()) continue;
    const Term& own = equation.inputs[static_cast<size_t>(i)];
    const int own_index = own[static_cast<size_t>(shard.axis)];
    if (term != nullptr && own_index != index) query.Refuse("the batch has different indices in its operands");
    if (std::count(own.begin(), own.end(), own_index) != 1) query.Refuse("it takes a diagonal along the batch axis");
    term = &own;
    index = own_index;
    made = Joined(query, made, Shard::Split(0, shard.inner));
  }
  if (partial == 1) {
    if (!made.split()) return query.SetAll(Shard::Partial());
    for (int i = 0; i < query.num_inputs(); ++i) query.in(i);
  }
  if (!made.split()) return query.SetAll(made);
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!query.in(i).split() && Contains(equation.inputs[static_cast<size_t>(i)], index) &&
        query.shape(i)[static_cast<int>(
            std::find(equation.inputs[static_cast<size_t>(i)].begin(), equation.inputs[static_cast<size_t>(i)].end(), index) -
            equation.inputs[static_cast<size_t>(i)].begin())] != 1) {
      query.Refuse("operand " + std::to_string(i) + " has the batch index but is not divided by samples");
    }
  }
  const auto at = std::find(equation.output.begin(), equation.output.end(), index);
  query.SetAll(at == equation.output.end() ? Shard::Partial() : Shard::Split(static_cast<int>(at - equation.output.begin()), made.inner));
}

const Op kOps[] = {
    {.name = "Einsum",
     .domain = "",
     .since_version = 28,
     .traits = kProduct,
     .gradient = EinsumGradient,
     .infer = InferEinsum,
     .cost = EinsumCost,
     .shard = ShardEinsum},
};

}  // namespace

std::span<const Op> EinsumOps() { return kOps; }

}  // namespace gradloom

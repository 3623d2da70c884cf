#include "compiler/passes/patterns/write_out_einsum.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite_nodes.h"
#include "runtime/base/einsum.h"

namespace gradloom {
namespace {

using Term = EinsumEquation::Term;

bool Contains(const Term& term, int index) { return std::find(term.begin(), term.end(), index) != term.end(); }

bool ReadsDiagonal(const Term& term) { return std::set<int>(term.begin(), term.end()).size() < term.size(); }

// Returns the indices of `term` that satisfy `wanted`, in its order.
template <typename F>
Term Select(const Term& term, F wanted) {
  Term selected;
  std::copy_if(term.begin(), term.end(), std::back_inserter(selected), wanted);
  return selected;
}

Term Joined(std::initializer_list<const Term*> terms) {
  Term joined;
  for (const Term* term : terms) joined.insert(joined.end(), term->begin(), term->end());
  return joined;
}

// A value and the indices of its axes, without repeated indices.
struct Operand {
  ValueId value = kNoValue;
  Term term;
};

// Chooses which two of `terms` to multiply next, such that the total cost in operations and bytes until one term is left is lowest. All
// orders are tried if there are few terms; otherwise the cheapest pair is taken, and of very many terms the first pair, since comparing all
// pairs would take too long. Ties go to the leftmost pair.
class ContractionOrder {
 public:
  ContractionOrder(std::map<int, int64_t> extents, const Term& output)
      : extents_(std::move(extents)), output_(output.begin(), output.end()) {}

  std::pair<size_t, size_t> Next(const std::vector<Term>& terms) const {
    std::pair<size_t, size_t> best{0, 1};
    if (terms.size() > kAllPairs) return best;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < terms.size(); ++i) {
      for (size_t j = i + 1; j < terms.size(); ++j) {
        double cost = CostOfPair(terms, i, j);
        if (terms.size() <= kAllOrders) cost += CostOfRest(After(terms, i, j));
        if (cost < least) least = cost, best = {i, j};
      }
    }
    return best;
  }

 private:
  static constexpr size_t kAllOrders = 5;  // 180 orders
  static constexpr size_t kAllPairs = 32;
  // The cost of writing an element and reading it again, in multiply-adds of a product.
  static constexpr double kElement = 32;

  double CostOfRest(const std::vector<Term>& terms) const {
    if (terms.size() < 2) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < terms.size(); ++i) {
      for (size_t j = i + 1; j < terms.size(); ++j) least = std::min(least, CostOfPair(terms, i, j) + CostOfRest(After(terms, i, j)));
    }
    return least;
  }

  double CostOfPair(const std::vector<Term>& terms, size_t i, size_t j) const {
    std::set<int> both(terms[i].begin(), terms[i].end());
    both.insert(terms[j].begin(), terms[j].end());
    return Combinations(both) + kElement * Combinations(Kept(terms, i, j));
  }

  // Returns the indices of the product of terms i and j that other terms or the output need.
  std::set<int> Kept(const std::vector<Term>& terms, size_t i, size_t j) const {
    std::set<int> needed = output_, kept;
    for (size_t k = 0; k < terms.size(); ++k) {
      if (k != i && k != j) needed.insert(terms[k].begin(), terms[k].end());
    }
    for (const Term* term : {&terms[i], &terms[j]}) {
      std::copy_if(term->begin(), term->end(), std::inserter(kept, kept.end()), [&](int index) { return needed.contains(index); });
    }
    return kept;
  }

  std::vector<Term> After(const std::vector<Term>& terms, size_t i, size_t j) const {
    std::vector<Term> after = terms;
    const std::set<int> kept = Kept(terms, i, j);
    after[i].assign(kept.begin(), kept.end());
    after.erase(after.begin() + static_cast<std::ptrdiff_t>(j));
    return after;
  }

  double Combinations(const std::set<int>& indices) const {
    double n = 1;
    for (int index : indices) n *= static_cast<double>(extents_.at(index));
    return n;
  }

  std::map<int, int64_t> extents_;
  std::set<int> output_;
};

class Writer {
 public:
  Writer(GraphBuilder& builder, const EinsumEquation& equation) : b_(builder), equation_(equation) {}

  ValueId Write(const std::vector<ValueId>& inputs) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < inputs.size(); ++i) operands.push_back(WithoutRepeats({inputs[i], equation_.inputs[i]}));
    const ContractionOrder order(equation_.extents, equation_.output);
    while (operands.size() > 1) {
      std::vector<Term> terms;
      for (const Operand& operand : operands) terms.push_back(operand.term);
      const auto [i, j] = order.Next(terms);
      std::set<int> needed(equation_.output.begin(), equation_.output.end());
      for (size_t k = 0; k < operands.size(); ++k) {
        if (k != i && k != j) needed.insert(terms[k].begin(), terms[k].end());
      }
      operands[i] = Product(operands[i], operands[j], needed);
      operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(j));
    }
    const Operand result = Summed(operands[0], {equation_.output.begin(), equation_.output.end()});
    return Arranged(result, equation_.output);
  }

 private:
  // Removes axes that are broadcast along an index: those of extent 1 where the index is longer.
  Operand WithoutRepeats(const Operand& operand) {
    const Shape shape = b_.shape(operand.value);
    Operand kept{operand.value, {}};
    Shape extents;
    for (size_t axis = 0; axis < operand.term.size(); ++axis) {
      const int64_t extent = shape[static_cast<int>(axis)];
      if (extent != equation_.extents.at(operand.term[axis])) continue;
      kept.term.push_back(operand.term[axis]);
      extents.push_back(extent);
    }
    kept.value = b_.Reshape(operand.value, extents);
    return kept;
  }

  // Sums over the indices that are not needed.
  Operand Summed(const Operand& operand, const std::set<int>& needed) {
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < operand.term.size(); ++axis) {
      if (!needed.contains(operand.term[axis])) axes.push_back(static_cast<int64_t>(axis));
    }
    if (axes.empty()) return operand;
    return {b_.ReduceSum(operand.value, axes, false), Select(operand.term, [&](int index) { return needed.contains(index); })};
  }

  Operand Product(Operand a, Operand b, const std::set<int>& needed) {
    const auto needed_beside = [&](const Operand& other) {
      std::set<int> all = needed;
      all.insert(other.term.begin(), other.term.end());
      return all;
    };
    a = Summed(a, needed_beside(b));
    b = Summed(b, needed_beside(a));
    const Term summed = Select(a.term, [&](int index) { return Contains(b.term, index) && !needed.contains(index); });
    // The operand with the first index of the output that they do not share (usually the batch) becomes the left one.
    const auto first_own = std::find_if(equation_.output.begin(), equation_.output.end(),
                                        [&](int index) { return Contains(a.term, index) != Contains(b.term, index); });
    if (first_own != equation_.output.end() && Contains(b.term, *first_own)) std::swap(a, b);
    const Term batch = Select(a.term, [&](int index) { return Contains(b.term, index) && needed.contains(index); });
    const Term rows = Select(a.term, [&](int index) { return !Contains(b.term, index); });
    const Term columns = Select(b.term, [&](int index) { return !Contains(a.term, index); });
    if (summed.empty() || (rows.empty() && columns.empty())) {
      const Term all = Joined({&batch, &rows, &columns, &summed});
      return Summed({b_.Mul(Spread(a, all), Spread(b, all)), all}, needed);
    }
    // [batch..., rows, summed] x [batch..., summed, columns]; several indices are merged into one axis.
    const ValueId left = Merged(a, batch, rows, summed), right = Merged(b, batch, summed, columns);
    const ValueId product = b_.MatMul(left, right);
    const Term made = Joined({&batch, &rows, &columns});
    return {b_.Reshape(product, ShapeOf(made)), made};
  }

  // Returns the operand with its axes in the order of `all`, and an axis of extent 1 for each index that it lacks.
  ValueId Spread(const Operand& operand, const Term& all) {
    const ValueId arranged = Arranged(operand, Select(all, [&](int index) { return Contains(operand.term, index); }));
    Shape shape;
    for (int index : all) shape.push_back(Contains(operand.term, index) ? equation_.extents.at(index) : 1);
    return b_.Reshape(arranged, shape);
  }

  // Returns the operand as [batch..., product of the extents of `second`, product of those of `third`].
  ValueId Merged(const Operand& operand, const Term& batch, const Term& second, const Term& third) {
    Shape shape = ShapeOf(batch);
    shape.push_back(ShapeOf(second).elements());
    shape.push_back(ShapeOf(third).elements());
    return b_.Reshape(Arranged(operand, Joined({&batch, &second, &third})), shape);
  }

  ValueId Arranged(const Operand& operand, const Term& order) {
    std::vector<int64_t> perm;
    for (int index : order) perm.push_back(std::find(operand.term.begin(), operand.term.end(), index) - operand.term.begin());
    return std::is_sorted(perm.begin(), perm.end()) ? operand.value : b_.Transpose(operand.value, perm);
  }

  Shape ShapeOf(const Term& term) const {
    Shape shape;
    for (int index : term) shape.push_back(equation_.extents.at(index));
    return shape;
  }

  GraphBuilder& b_;
  const EinsumEquation& equation_;
};

}  // namespace

void WriteOutEinsum(GraphBuilder& b) {
  RewriteNodes(b, [&](const Node& node) {
    if (node.op != "Einsum" || !node.domain.empty() || !IsFloating(b.dtype(node.outputs[0]))) return false;
    std::vector<Shape> shapes;
    for (ValueId id : node.inputs) shapes.push_back(b.shape(id));
    const EinsumEquation equation = EinsumEquation::Parse(node.attributes.String("equation", ""), shapes);
    if (std::any_of(equation.inputs.begin(), equation.inputs.end(), ReadsDiagonal)) return false;
    const ValueId made = Writer(b, equation).Write(node.inputs);
    b.graph().AddNode({.op = "Identity", .inputs = {made}, .outputs = {node.outputs[0]}, .origin = node.origin});
    return true;
  });
}

}  // namespace gradloom

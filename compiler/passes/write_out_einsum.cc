#include "compiler/passes/write_out_einsum.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
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

// Those of `term` that satisfy `wanted`, in its order.
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

// A value and the indices of its axes, no index twice.
struct Operand {
  ValueId value = kNoValue;
  Term term;
};

class Writer {
 public:
  Writer(GraphBuilder& builder, const EinsumEquation& equation) : b_(builder), equation_(equation) {}

  ValueId Write(const std::vector<ValueId>& inputs) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < inputs.size(); ++i) operands.push_back(WithoutRepeats({inputs[i], equation_.inputs[i]}));
    Operand result = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) {
      std::set<int> needed(equation_.output.begin(), equation_.output.end());
      for (size_t j = i + 1; j < operands.size(); ++j) needed.insert(operands[j].term.begin(), operands[j].term.end());
      result = Product(result, operands[i], needed);
    }
    result = Summed(result, {equation_.output.begin(), equation_.output.end()});
    return Arranged(result, equation_.output);
  }

 private:
  // Without the axes that repeat along an index: of extent 1 where the index is longer.
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

  // Without the indices that nobody needs.
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
    // The samples come first in what is multiplied: their operand is the left one.
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
    // [batch..., rows, summed] x [batch..., summed, columns]: several indices are one axis.
    const ValueId left = Merged(a, batch, rows, summed), right = Merged(b, batch, summed, columns);
    const ValueId product = b_.MatMul(left, right);
    const Term made = Joined({&batch, &rows, &columns});
    return {b_.Reshape(product, ShapeOf(made)), made};
  }

  // The operand's axes in the order of `all`, with an axis of extent 1 for each index that it has not.
  ValueId Spread(const Operand& operand, const Term& all) {
    const ValueId arranged = Arranged(operand, Select(all, [&](int index) { return Contains(operand.term, index); }));
    Shape shape;
    for (int index : all) shape.push_back(Contains(operand.term, index) ? equation_.extents.at(index) : 1);
    return b_.Reshape(arranged, shape);
  }

  // [batch..., the product of the second's extents, that of the third's].
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

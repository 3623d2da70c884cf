#include "compiler/passes/gradient/concat_gradients.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/graph/constants.h"
#include "compiler/passes/devices/slice_part.h"
#include "compiler/passes/graph_match.h"

namespace gradloom {
namespace {

// A gradient, and the slice that it is the gradient of.
struct Part {
  SlicePart at;
  ValueId gradient = kNoValue;  // may lack the axis, if it is a single row
};

// The terms of a sum.
struct Terms {
  std::vector<Part> parts;      // along one axis, in its order; they do not overlap
  std::vector<ValueId> others;  // in the order of the sum
};

class Joiner {
 public:
  explicit Joiner(GraphBuilder& builder) : b_(builder), graph_(builder.graph()), match_(graph_) {}

  void Run() {
    std::map<int, std::function<void()>> emits;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!IsSum(node) || IsTerm(node)) continue;
      Terms terms = TermsOf(node);
      if (terms.parts.size() < 2) continue;
      emits.emplace(static_cast<int>(i), [this, terms = std::move(terms), result = node.outputs[0], phase = node.phase,
                                          origin = node.origin] { Emit(terms, result, phase, origin); });
    }
    ReplaceNodes(graph_, emits);
  }

 private:
  // Whether the node adds two operands of one type without broadcasting. x + x does not count: it is one term that is counted twice.
  bool IsSum(const Node& node) const {
    if (node.op != "Add" || !node.domain.empty() || node.inputs[0] == node.inputs[1]) return false;
    const ValueType type = graph_.type(node.outputs[0]);
    return graph_.type(node.inputs[0]) == type && graph_.type(node.inputs[1]) == type;
  }

  // Whether the sum is only used as a term of another sum.
  bool IsTerm(const Node& sum) const {
    const Node* reader = match_.OnlyReader(sum.outputs[0]);
    return reader != nullptr && IsSum(*reader) && reader->device == sum.device;
  }

  const Node* ProducerOf(ValueId id) const {
    const int at = match_.Producer(id);
    return at < 0 || match_.OnlyReader(id) == nullptr ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }

  std::optional<Part> PartOfTerm(ValueId id) const {
    const Node* node = ProducerOf(id);
    if (node == nullptr || node->domain != kGradloomDomain) return std::nullopt;
    const Shape whole = graph_.value(id).shape;
    if (node->op == "SliceGrad") {
      const auto at = PartOf(graph_, *node, whole, graph_.value(node->inputs[0]).shape);
      return at ? std::optional(Part{*at, node->inputs[0]}) : std::nullopt;
    }
    const std::optional<int> axis = NormalAxis(node->attributes.Int("axis", 0), whole.rank());
    if (node->op != "GatherGrad" || !axis) return std::nullopt;
    const auto rows = ConstantInts(graph_, *node, 0);
    if (!rows || rows->empty() || graph_.value(node->inputs[0]).shape.rank() > 1) return std::nullopt;
    const int64_t extent = whole[*axis], first = rows->front() < 0 ? rows->front() + extent : rows->front();
    for (size_t i = 0; i < rows->size(); ++i) {
      const int64_t row = (*rows)[i] < 0 ? (*rows)[i] + extent : (*rows)[i];
      if (row != first + static_cast<int64_t>(i) || row < 0 || row >= extent) return std::nullopt;
    }
    return Part{{*axis, first, first + static_cast<int64_t>(rows->size())}, node->inputs[1]};
  }

  Terms TermsOf(const Node& root) const {
    Terms terms;
    std::map<int, std::vector<std::pair<Part, ValueId>>> by_axis;
    std::vector<ValueId> order, open{root.inputs[1], root.inputs[0]};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const Node* sum = ProducerOf(id);
      if (sum != nullptr && IsSum(*sum) && sum->device == root.device) {
        open.insert(open.end(), {sum->inputs[1], sum->inputs[0]});
        continue;
      }
      order.push_back(id);
      if (const auto part = PartOfTerm(id)) by_axis[part->at.axis].emplace_back(*part, id);
    }
    std::vector<ValueId> taken;
    for (auto& [axis, parts] : by_axis) {
      std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first.at.begin < b.first.at.begin; });
      std::vector<Part> apart;
      std::vector<ValueId> ids;
      for (const auto& [part, id] : parts) {
        if (part.at.begin == part.at.end || (!apart.empty() && part.at.begin < apart.back().at.end)) continue;
        apart.push_back(part);
        ids.push_back(id);
      }
      if (apart.size() > terms.parts.size()) terms.parts = std::move(apart), taken = std::move(ids);
    }
    std::sort(taken.begin(), taken.end());
    std::copy_if(order.begin(), order.end(), std::back_inserter(terms.others),
                 [&](ValueId id) { return !std::binary_search(taken.begin(), taken.end(), id); });
    return terms;
  }

  void Emit(const Terms& terms, ValueId result, Phase phase, const std::string& origin) {
    b_.set_phase(phase);
    b_.set_origin(origin);
    const ValueType whole = graph_.type(result);
    const int axis = terms.parts.front().at.axis;
    std::vector<ValueId> pieces;
    int64_t covered = 0;
    const auto piece = [&](int64_t end) {
      ValueType type = whole;
      type.shape[axis] = end - covered;
      covered = end;
      return type;
    };
    for (const Part& part : terms.parts) {
      if (part.at.begin > covered) pieces.push_back(b_.Zeros(piece(part.at.begin)));
      pieces.push_back(b_.Reshape(part.gradient, piece(part.at.end).shape));
    }
    if (covered < whole.shape[axis]) pieces.push_back(b_.Zeros(piece(whole.shape[axis])));
    Node last{.op = "Concat", .inputs = pieces, .attributes = {{"axis", static_cast<int64_t>(axis)}}};
    if (!terms.others.empty()) {
      ValueId sum = terms.others.front();
      for (size_t i = 1; i < terms.others.size(); ++i) sum = b_.Add(sum, terms.others[i]);
      last = {.op = "Add", .inputs = {sum, b_.Op("Concat", last.inputs, last.attributes)}};
    }
    last.outputs = {result};
    last.phase = phase;
    last.origin = origin;
    graph_.AddNode(std::move(last));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
};

}  // namespace

void ConcatGradients(GraphBuilder& builder) { Joiner(builder).Run(); }

}  // namespace gradloom

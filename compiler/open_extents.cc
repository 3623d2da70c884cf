#include "compiler/open_extents.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "compiler/onnx/type_rules.h"
#include "runtime/base/joined.h"

namespace gradloom {
namespace {

class Reader {
 public:
  Reader(Algorithm& algorithm, const std::vector<OtherExtent>& others)
      : algorithm_(algorithm), others_(others), graph_(*algorithm.graph), b_(graph_, rules_) {}

  void Run() {
    NameTargets();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::vector<size_t> at;  // the position of the next node in each of the others
    for (const OtherExtent& other : others_) at.push_back(FirstOf(*other.algorithm));
    for (Node& node : nodes) {
      if (node.id < algorithm_.first) {
        graph_.nodes.push_back(std::move(node));
        continue;
      }
      std::vector<const Node*> there;
      for (size_t e = 0; e < others_.size(); ++e) {
        const std::vector<Node>& list = others_[e].algorithm->graph->nodes;
        const Node* other = at[e] < list.size() ? &list[at[e]++] : nullptr;
        if (other == nullptr || other->op != node.op || other->inputs.size() != node.inputs.size()) Refuse(node, "has other operators");
        there.push_back(other);
      }
      Read(node, there);
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  static size_t FirstOf(const Algorithm& algorithm) {
    size_t i = 0;
    while (i < algorithm.graph->nodes.size() && algorithm.graph->nodes[i].id < algorithm.first) ++i;
    return i;
  }

  [[noreturn]] void Refuse(const Node& node, const std::string& why) const {
    const std::string names = JoinedTexts(others_, [](const OtherExtent& other) { return Escaped(other.extent.symbol); });
    throw Error(ErrorCode::kUnsupported, "the algorithm " + why + " at another value of a symbolic dimension of the model (" + names + ")",
                Describe(node), "give the model fixed dimensions before training");
  }

  void NameTargets() {
    for (const ValueId id : graph_.inputs) {
      const Shape& shape = graph_.value(id).shape;
      std::vector<std::string>& names = algorithm_.symbols[id];
      names.resize(static_cast<size_t>(shape.rank()));
      for (int axis = 0; axis < shape.rank(); ++axis) {
        for (const OtherExtent& other : others_) {
          const Graph& graph = *other.algorithm->graph;
          const int64_t there = graph.value(graph.Find(graph_.value(id).name)).shape[axis];
          if (there == shape[axis]) continue;
          std::string& name = names[static_cast<size_t>(axis)];
          const bool is_it = shape[axis] == other.extent.value && there == other.there && name.empty();
          name = is_it || other.extent.symbol.empty() ? other.extent.symbol : kUnnamedExtent;
        }
      }
    }
  }

  void Read(Node& node, const std::vector<const Node*>& there) {
    b_.set_origin(node.origin);
    b_.set_phase(node.phase);
    for (const Node* other : there) {
      for (const auto& [name, value] : node.attributes) {
        if (!other->attributes.has(name) || Attributes::ToString(value) != Attributes::ToString(Find(*other, name)))
          Refuse(node, "has a different attribute '" + Escaped(name) + "'");
      }
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || graph_.data(id) == nullptr || graph_.value(id).role != Role::kConst) continue;
      std::vector<const Tensor*> tensors;
      for (size_t e = 0; e < there.size(); ++e) {
        const Tensor* data = others_[e].algorithm->graph->data(there[e]->inputs[i]);
        if (data == nullptr || data->shape() != graph_.data(id)->shape()) Refuse(node, "has an operand of a different shape");
        tensors.push_back(data);
      }
      const auto known = memo_.find(id);
      node.inputs[i] = known != memo_.end() ? known->second : memo_[id] = Computed(node, id, tensors);
    }
  }

  static const Attribute& Find(const Node& node, const std::string& name) {
    for (const auto& [key, value] : node.attributes) {
      if (key == name) return value;
    }
    throw Error(ErrorCode::kInternal, "no attribute", name);
  }

  // Returns the constant as a value computed from the extents that it depends on.
  ValueId Computed(const Node& node, ValueId id, const std::vector<const Tensor*>& there) {
    const Tensor here = *graph_.data(id);
    bool changes = false;
    for (int64_t i = 0; i < here.elements(); ++i) changes |= !FactorsOf(node, here, there, i).empty();
    if (!changes) return id;
    if (here.shape().rank() == 0) return Element(node, here, there, 0);
    if (here.shape().rank() != 1) Refuse(node, "has a different operand");
    std::vector<ValueId> parts;
    for (int64_t i = 0; i < here.elements(); ++i) parts.push_back(b_.Reshape(Element(node, here, there, i), Shape{1}));
    return parts.size() == 1 ? parts[0] : b_.Op("Concat", std::move(parts), {{"axis", int64_t{0}}});
  }

  struct Factor {
    size_t extent = 0;
    bool divides = false;
  };

  std::vector<Factor> FactorsOf(const Node& node, const Tensor& here, const std::vector<const Tensor*>& there, int64_t i) const {
    const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); };
    std::vector<Factor> factors;
    const double value = ElementAsDouble(here.view(), i);
    for (size_t e = 0; e < others_.size(); ++e) {
      const double other = ElementAsDouble(there[e]->view(), i);
      if (value == other || (std::isnan(value) && std::isnan(other))) continue;
      const double ratio = static_cast<double>(others_[e].there) / static_cast<double>(others_[e].extent.value);
      if (close(other, value * ratio)) {
        factors.push_back({e, false});
      } else if (close(other, value / ratio) && IsFloating(here.dtype())) {
        factors.push_back({e, true});
      } else {
        Refuse(node, "has a different operand");
      }
    }
    return factors;
  }

  ValueId Element(const Node& node, const Tensor& here, const std::vector<const Tensor*>& there, int64_t i) {
    double rest = ElementAsDouble(here.view(), i);
    const std::vector<Factor> factors = FactorsOf(node, here, there, i);
    for (const Factor& factor : factors) {
      const auto extent = static_cast<double>(others_[factor.extent].extent.value);
      rest = factor.divides ? rest * extent : rest / extent;
    }
    const bool whole = IsFloating(here.dtype()) && std::abs(rest - std::round(rest)) <= 1e-6 * std::abs(rest);
    ValueId product = b_.Scalar(whole || !IsFloating(here.dtype()) ? std::round(rest) : rest, here.dtype());
    for (const Factor& factor : factors) {
      const ValueId extent = b_.Cast(Extent(factor.extent), here.dtype());
      product = factor.divides ? b_.Div(product, extent) : graph_.data(product) != nullptr && rest == 1 ? extent : b_.Mul(product, extent);
    }
    return product;
  }

  // Returns the extent as int64 [].
  ValueId Extent(size_t e) {
    const auto known = extents_.find(e);
    if (known != extents_.end()) return known->second;
    const OpenExtent& extent = others_[e].extent;
    const ValueId shape = b_.Op("Shape", {graph_.Find(extent.input)});
    return extents_[e] = b_.Op("Gather", {shape, b_.Scalar(extent.axis, DType::kInt64)});
  }

  Algorithm& algorithm_;
  const std::vector<OtherExtent>& others_;
  Graph& graph_;
  const OnnxTypeRules rules_;
  GraphBuilder b_;
  std::map<ValueId, ValueId> memo_;
  std::map<size_t, ValueId> extents_;
};

}  // namespace

void ReadExtents(Algorithm& algorithm, const std::vector<OtherExtent>& others) {
  if (!others.empty()) Reader(algorithm, others).Run();
}

}  // namespace gradloom

// Branches inside a loop over bags, and the inner loop that keeps some elements of a bag.
#include <algorithm>

#include "compiler/onnx/bags/bag_loops.h"
#include "compiler/onnx/standard_domain.h"

namespace gradloom {

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalBranch(const onnx::NodeProto& node, const char* name, Body& body) {
  const onnx::AttributeProto* attribute = i_.FindAttribute(node, name, body.scope);
  if (attribute == nullptr || !attribute->has_g() || attribute->g().output_size() != 1) return std::nullopt;
  Body branch{&attribute->g(), &body, i_.Nested(body.scope, body.scope.path), {}};
  i_.AddInitializers(attribute->g(), branch.scope);
  return Eval(attribute->g().output(0).name(), branch);
}

// Evaluates a branch for these iterations. Values of the enclosing body that it needs are evaluated for them only.
Importer::BagLoop::MaybeLane Importer::BagLoop::EvalWhere(const std::vector<bool>& iterations, const onnx::NodeProto& node,
                                                          const char* name, Body& body) {
  if (std::find(iterations.begin(), iterations.end(), true) == iterations.end()) return std::nullopt;
  if (iterations == active_ || (active_.empty() && std::find(iterations.begin(), iterations.end(), false) == iterations.end()))
    return EvalBranch(node, name, body);
  std::vector<std::map<std::string, MaybeLane>> lanes;
  for (const Body* at = &body; at != nullptr; at = at->outer) lanes.push_back(at->lanes);
  const std::vector<bool> before = std::exchange(active_, iterations);
  MaybeLane made = EvalBranch(node, name, body);
  active_ = before;
  size_t k = 0;
  for (Body* at = &body; at != nullptr; at = at->outer) at->lanes = std::move(lanes[k++]);
  return made;
}

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalIf(const onnx::NodeProto& node, Body& body) {
  const MaybeLane condition = node.input_size() == 1 && node.output_size() == 1 ? Eval(node.input(0), body) : std::nullopt;
  if (!condition) return std::nullopt;
  if (const auto numbers = Numbers(*condition)) {
    std::vector<bool> then(numbers->size()), other(numbers->size());
    for (size_t i = 0; i < numbers->size(); ++i) (((*numbers)[i] != 0 ? then : other)[i]) = active(i);
    // If both branches are taken (the last iteration usually differs), they must compute the same.
    const MaybeLane yes = EvalWhere(then, node, "then_branch", body), no = EvalWhere(other, node, "else_branch", body);
    const auto any = [](const std::vector<bool>& iterations) {
      return std::find(iterations.begin(), iterations.end(), true) != iterations.end();
    };
    if (!any(then) || !any(other)) return any(then) ? yes : no;
    return yes && no && *yes == *no ? yes : std::nullopt;
  }
  const MaybeLane yes = EvalBranch(node, "then_branch", body), no = EvalBranch(node, "else_branch", body);
  if (!yes || !no) return std::nullopt;
  // The divisor of a mean over no elements.
  if (condition->kind == Kind::kFilled) {
    const bool same = yes->kind == Kind::kRow && no->kind == Kind::kRow && yes->id == no->id && yes->kept == no->kept;
    return same && yes->by == "ReduceMean" && no->by == "ReduceSum" && yes->single == no->single ? yes : std::nullopt;
  }
  if (condition->kind == Kind::kNone || condition->kind == Kind::kEmpty) {
    // The result for no elements is zeros anyway.
    const Tensor* zeros = Constant(*yes);
    if (zeros == nullptr || !IsFloating(zeros->dtype()) || no->kind != Kind::kRow) return std::nullopt;
    for (int64_t i = 0; i < zeros->elements(); ++i) {
      if (ElementAsDouble(zeros->view(), i) != 0) return std::nullopt;
    }
    return no;
  }
  if (condition->kind != Kind::kElement || TypeOf(condition->id) != DType::kBool) return std::nullopt;
  if (yes->kind == Kind::kElement && no->kind == Kind::kElement)
    return Lane{.kind = Kind::kElement, .id = Emit("Where", {condition->id, yes->id, no->id})};
  if (yes->kind == Kind::kPlaceKept && no->kind == Kind::kPlaces) return Lane{.kind = Kind::kKept, .id = condition->id};
  return std::nullopt;
}

// Evaluates the inner loop, which goes over the elements of a part and keeps the positions of some.
Importer::BagLoop::MaybeLane Importer::BagLoop::EvalKept(const onnx::NodeProto& node, Body& body) {
  const onnx::AttributeProto* attribute = i_.FindAttribute(node, "body", body.scope);
  if (attribute == nullptr || !attribute->has_g() || body.outer != nullptr) return std::nullopt;
  const onnx::GraphProto& graph = attribute->g();
  if (node.input_size() != 4 || !node.input(0).empty() || graph.input_size() != 4 || graph.output_size() != 3 || node.output_size() != 2)
    return std::nullopt;
  // The position and the list, in either order.
  MaybeLane start = Eval(node.input(2), body), list = Eval(node.input(3), body);
  const bool list_first = start && Constant(*start) != nullptr && Constant(*start)->elements() == 0;
  if (list_first) std::swap(start, list);
  const int place = list_first ? 1 : 0;
  const MaybeLane goes = Eval(node.input(1), body);
  const Tensor* none = list ? Constant(*list) : nullptr;
  if (!goes || !start || none == nullptr || none->elements() != 0) return std::nullopt;
  const bool by_data = start->kind == Kind::kAt;
  if (by_data && goes->kind != Kind::kFilled) return std::nullopt;
  const auto going = by_data ? std::vector<int64_t>() : Numbers(*goes), begins = by_data ? std::vector<int64_t>() : Numbers(*start);
  if (!going || !begins || std::find(going->begin(), going->end(), 0) != going->end()) return std::nullopt;
  // The loop continues while the next position is before the end of the part.
  Body within{&graph, &body, i_.Nested(body.scope, body.scope.path), {}};
  i_.AddInitializers(graph, within.scope);
  within.lanes[graph.input(0).name()] = std::nullopt;
  within.lanes[graph.input(1).name()] = std::nullopt;
  within.lanes[graph.input(2 + place).name()] = Lane{.kind = Kind::kPlace};
  within.lanes[graph.input(3 - place).name()] = Lane{.kind = Kind::kPlaces};
  const onnx::NodeProto* less = nullptr;
  for (std::string name = graph.output(0).name(); less == nullptr;) {
    const onnx::NodeProto* made = Producer(name, graph);
    if (made == nullptr || made->output_size() != 1 || !IsStandardDomain(made->domain())) return std::nullopt;
    if (made->op_type() != "Less" && made->op_type() != "Identity") return std::nullopt;
    if (made->op_type() == "Less") less = made;
    name = made->input(0);
  }
  const MaybeLane next = Eval(graph.output(1 + place).name(), within), until = Eval(less->input(0), within),
                  end = Eval(less->input(1), within);
  if (!next || next->kind != Kind::kNext || !until || until->kind != Kind::kNext || !end) return std::nullopt;
  if (by_data) {
    if (!MatchBags(*start, *end)) return std::nullopt;
  } else {
    // The data that is gathered from must end with the last part too.
    const auto ends = Numbers(*end);
    if (!ends || !MatchParts(*begins, *ends, ends->back())) return std::nullopt;
  }
  const MaybeLane kept = Eval(graph.output(2 - place).name(), within);
  body.lanes[node.output(place)] = std::nullopt;
  return kept && kept->kind == Kind::kKept ? kept : std::nullopt;
}

}  // namespace gradloom

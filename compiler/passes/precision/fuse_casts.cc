#include "compiler/passes/precision/fuse_casts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/position_rewriter.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

class CastFuser : public PositionRewriter {
 public:
  explicit CastFuser(GraphBuilder& builder) : PositionRewriter(builder) {}

  void Run(bool norms) {
    Visit(&CastFuser::SinkPastViews);
    Visit(&CastFuser::RaiseBeforeViews);
    Visit(&CastFuser::FuseLoss);
    if (!norms) return;
    Visit(&CastFuser::FuseResult);
    DropUnread();
    Visit(&CastFuser::FuseGradient);
  }

 private:
  // Puts the nodes where the one at this position is.
  void Replace(int at, std::vector<Node> by) {
    replaced_.emplace(at, [this, nodes = std::move(by)]() mutable {
      for (Node& node : nodes) graph_.AddNode(std::move(node));
    });
  }

  // A value that is named after another one and has its role.
  ValueId AddLike(ValueId id, DType dtype, const Shape& shape) {
    const Value like = graph_.value(id);
    return graph_.AddValue(like.name + "/" + std::string(DTypeName(dtype)), dtype, shape, like.role);
  }

  bool Widens(const Node& node) const {
    return node.op == "Cast" && node.domain.empty() && Is16BitFloat(b_.dtype(node.inputs[0])) &&
           b_.dtype(node.outputs[0]) == DType::kFloat32;
  }

  // Moves a cast behind all views of its result that follow each other.
  void SinkPastViews(int at) {
    Node cast = NodeAt(at);
    if (!Widens(cast)) return;
    const DType dtype = b_.dtype(cast.inputs[0]);
    std::vector<std::pair<int, Node>> views;  // by position
    for (const Node* reader; (reader = match_->OnlyReader(cast.outputs[0])) != nullptr && IsView(*reader);) {
      Node view = *reader;
      if (view.inputs[0] != cast.outputs[0]) break;
      view.inputs[0] = cast.inputs[0];
      cast.outputs = view.outputs;
      view.outputs = {AddLike(cast.outputs[0], dtype, b_.shape(cast.outputs[0]))};
      cast.inputs = view.outputs;
      views.emplace_back(match_->Producer(cast.outputs[0]), std::move(view));
    }
    if (views.empty()) return;
    Remove(at);
    auto [last, last_view] = std::move(views.back());
    views.pop_back();
    for (auto& [position, view] : views) Replace(position, {std::move(view)});
    Replace(last, {std::move(last_view), std::move(cast)});
  }

  bool Narrows(const Node& node) const {
    return node.op == "Cast" && node.domain.empty() && b_.dtype(node.inputs[0]) == DType::kFloat32 &&
           Is16BitFloat(b_.dtype(node.outputs[0]));
  }

  // Moves a cast, and the views that follow each other before it, before all of these.
  void RaiseBeforeViews(int at) {
    Node cast = NodeAt(at);
    if (!Narrows(cast)) return;
    std::vector<Node> views;  // the last one first
    for (int view_at; (view_at = match_->Producer(cast.inputs[0])) >= 0 && match_->OnlyReader(cast.inputs[0]) != nullptr;) {
      const Node& view = NodeAt(view_at);
      // A weight is not made by a node; its copy is cached in the layout of its readers.
      if (!IsView(view) || match_->Producer(view.inputs[0]) < 0 || view.phase != cast.phase) break;
      views.push_back(view);
      cast.inputs = {view.inputs[0]};
      Remove(view_at);
    }
    if (views.empty()) return;
    const ValueId result = cast.outputs[0];
    const DType dtype = b_.dtype(result);
    cast.outputs = {AddLike(result, dtype, b_.shape(cast.inputs[0]))};
    std::vector<Node> nodes{std::move(cast)};
    for (size_t i = views.size(); i-- > 0;) {
      Node& view = views[i];
      view.inputs[0] = nodes.back().outputs[0];
      view.outputs = {i == 0 ? result : AddLike(result, dtype, b_.shape(view.outputs[0]))};
      nodes.push_back(std::move(view));
    }
    Replace(at, std::move(nodes));
  }

  // Whether a value exists for one node alone.
  bool IsReadOnce(ValueId id) const { return match_->OnlyReader(id) != nullptr; }

  void FuseLoss(int at) {
    const Node& loss = NodeAt(at);
    if (loss.op != "CrossEntropy" || loss.domain != kGradloomDomain || !IsReadOnce(loss.inputs[0])) return;
    const int cast_at = match_->Producer(loss.inputs[0]);
    if (cast_at < 0 || !Widens(NodeAt(cast_at))) return;
    const ValueId scores = NodeAt(cast_at).inputs[0], log_prob = loss.outputs[2];
    // The gradient, if there is one, is rounded to the type of the scores.
    int gradient_at = -1, round_at = -1;
    if (log_prob != kNoValue && (match_->IsKept(log_prob) || match_->num_readers(log_prob) > 0)) {
      const Node* const gradient = match_->OnlyReader(log_prob);
      if (gradient == nullptr || gradient->op != "CrossEntropyGrad" || gradient->domain != kGradloomDomain) return;
      const Node* const round = match_->OnlyReader(gradient->outputs[0]);
      if (round == nullptr || !Narrows(*round) || b_.dtype(round->outputs[0]) != b_.dtype(scores)) return;
      gradient_at = match_->Producer(gradient->outputs[0]);
      round_at = match_->Producer(round->outputs[0]);
    }
    const Value wide = graph_.value(loss.inputs[0]);
    const ValueId log_sum = graph_.AddValue(wide.name + "/log_sum", wide.dtype, Shape{wide.shape[0]}, Role::kActivation);
    Remove(cast_at);
    replaced_.emplace(at, [this, loss = Node(loss), scores, log_sum]() mutable {
      loss.op = "CrossEntropyLogSum";
      loss.inputs[0] = scores;
      loss.outputs[2] = log_sum;
      graph_.AddNode(std::move(loss));
    });
    if (gradient_at < 0) return;
    Remove(gradient_at);
    replaced_.emplace(round_at,
                      [this, gradient = Node(NodeAt(gradient_at)), result = NodeAt(round_at).outputs[0], scores, log_sum]() mutable {
                        gradient.op = "CrossEntropyLogSumGrad";
                        gradient.inputs[0] = scores;
                        gradient.inputs.insert(gradient.inputs.begin() + 1, log_sum);
                        gradient.outputs = {result};
                        graph_.AddNode(std::move(gradient));
                      });
  }

  // Scale and bias must be whole rows: broadcast ones stay with ONNX's operator.
  bool HasWholeRows(const Node& norm) const {
    const Shape& x = b_.shape(norm.inputs[0]);
    const int64_t axis = norm.attributes.Int("axis", -1), first = axis < 0 ? axis + x.rank() : axis;
    const Shape row(std::vector<int64_t>(x.begin() + first, x.end()));
    return std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [&](ValueId id) { return id == kNoValue || b_.shape(id) == row; });
  }

  void FuseResult(int at) {
    const Node& norm = NodeAt(at);
    if (norm.op != "LayerNormalization" || !norm.domain.empty() || b_.dtype(norm.inputs[0]) != DType::kFloat32) return;
    const bool alone = std::all_of(norm.outputs.begin() + 1, norm.outputs.end(), [](ValueId id) { return id == kNoValue; });
    if (!alone || !HasWholeRows(norm)) return;
    const std::vector<int> casts = match_->NarrowingCasts(norm.outputs[0]);
    if (casts.empty()) return;
    const Value y = graph_.value(norm.outputs[0]);
    const DType to = b_.dtype(NodeAt(casts[0]).outputs[0]);
    const ValueId narrow = graph_.AddValue(y.name + "/" + std::string(DTypeName(to)), to, y.shape, y.role);
    for (int cast : casts) {
      replaced_.emplace(cast, [this, cast_node = NodeAt(cast), narrow] {
        const ValueId made = cast_node.outputs[0];
        Node view{.op = "Reshape", .inputs = {narrow, b_.Ints(b_.shape(made).dims())}, .outputs = {made}};
        Append(std::move(view), cast_node);
      });
    }
    replaced_.emplace(at, [this, norm, narrow, to] {
      Node both{.op = "LayerNormCast", .domain = std::string(kGradloomDomain), .inputs = norm.inputs, .outputs = {norm.outputs[0], narrow}};
      both.attributes = {
          {"axis", norm.attributes.Int("axis", -1)}, {"epsilon", norm.attributes.Float("epsilon", 1e-5)}, {"to", static_cast<int64_t>(to)}};
      Append(std::move(both), norm);
    });
  }

  // Removes float32 results that are no longer read.
  void DropUnread() {
    const GraphMatch match(graph_);
    for (Node& node : graph_.nodes) {
      if (node.op != "LayerNormCast" || node.domain != kGradloomDomain || node.outputs[0] == kNoValue) continue;
      if (!match.IsKept(node.outputs[0]) && match.num_readers(node.outputs[0]) == 0) node.outputs[0] = kNoValue;
    }
  }

  void FuseGradient(int at) {
    const Node& norm = NodeAt(at);
    if (norm.op != "LayerNormGrad" || norm.domain != kGradloomDomain || b_.dtype(norm.inputs[1]) != DType::kFloat32) return;
    const int cast = match_->Producer(norm.inputs[0]);
    if (cast < 0 || !Widens(NodeAt(cast)) || match_->OnlyReader(norm.inputs[0]) == nullptr) return;
    Remove(cast);
    replaced_.emplace(at, [this, norm = Node(norm), from = NodeAt(cast).inputs[0]]() mutable {
      norm.inputs[0] = from;
      graph_.AddNode(std::move(norm));
    });
  }
};

}  // namespace

void FuseCasts(GraphBuilder& builder, bool norms) { CastFuser(builder).Run(norms); }

}  // namespace gradloom

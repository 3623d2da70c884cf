#include "compiler/passes/fusion/fuse_norm_sums.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/passes/graph_match.h"
#include "compiler/passes/position_rewriter.h"
#include "compiler/passes/schedule/choose_kernels.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

class SumFuser : public PositionRewriter {
 public:
  explicit SumFuser(GraphBuilder& builder) : PositionRewriter(builder) {}

  void Run(bool forward) {
    if (forward) Visit(&SumFuser::FuseForward);
    Visit(&SumFuser::FuseGradient);
  }

 private:
  bool IsOwn(const Node& node, const char* op) const { return node.op == op && node.domain == kGradloomDomain; }
  bool IsFloat(ValueId id) const { return b_.dtype(id) == DType::kFloat32; }

  // The sum of two values of the same shape as the result, in float32.
  bool IsSum(const Node& node) const {
    return node.op == "Add" && node.domain.empty() && IsFloat(node.outputs[0]) && b_.shape(node.inputs[0]) == b_.shape(node.outputs[0]) &&
           b_.shape(node.inputs[1]) == b_.shape(node.outputs[0]) && node.inputs[0] != node.inputs[1];
  }

  // The 16-bit value that is widened for one reader alone; otherwise the value itself.
  ValueId Narrow(ValueId id) const {
    const int at = match_->Producer(id);
    if (at < 0 || match_->OnlyReader(id) == nullptr) return id;
    const Node& cast = NodeAt(at);
    return cast.op == "Cast" && cast.domain.empty() && Is16BitFloat(b_.dtype(cast.inputs[0])) ? cast.inputs[0] : id;
  }

  // Whether pointwise fusion would compute this operand of a sum in the same launch as the sum.
  bool FusesWithSum(ValueId id) const {
    id = Narrow(id);
    for (int at; match_->OnlyReader(id) != nullptr && (at = match_->Producer(id)) >= 0; id = NodeAt(at).inputs[0]) {
      const Node& node = NodeAt(at);
      if (IsView(node)) continue;
      const Op* const op = FindOp(node.domain, node.op);
      return op != nullptr && op->has(kPointwise);
    }
    return false;
  }

  // The operands of a sum that are worth fusing: the second one may have 16 bits.
  std::optional<std::pair<ValueId, ValueId>> Operands(const Node& sum) const {
    ValueId a = sum.inputs[0], b = sum.inputs[1];
    if (FusesWithSum(a) || FusesWithSum(b)) return std::nullopt;
    if (Narrow(a) != a) std::swap(a, b);
    if (Narrow(a) != a) return std::nullopt;
    return std::pair(a, Narrow(b));
  }

  // Whether the device has a kernel for the node: its rows are held in registers.
  bool HasKernel(const Node& node, const std::vector<ValueType>& outputs) const {
    return HasOwnKernel(graph_, node, outputs, DeviceKind::kCuda);
  }

  bool IsRead(ValueId id) const { return id != kNoValue && (match_->IsKept(id) || match_->num_readers(id) > 0); }

  // At the position of the sum, from which other nodes may read it.
  void FuseForward(int at) {
    const Node& norm = NodeAt(at);
    if (!IsOwn(norm, "LayerNormCast")) return;
    const int sum_at = match_->Producer(norm.inputs[0]);
    if (sum_at < 0 || replaced_.contains(sum_at) || !IsSum(NodeAt(sum_at)) || NodeAt(sum_at).phase != norm.phase) return;
    const auto operands = Operands(NodeAt(sum_at));
    if (!operands) return;
    for (size_t i = 1; i < norm.inputs.size(); ++i) {
      if (match_->Producer(norm.inputs[i]) >= sum_at) return;
    }
    const ValueId sum = norm.inputs[0];
    Node both{.op = "SumLayerNorm", .domain = std::string(kGradloomDomain), .inputs = {operands->first, operands->second}};
    both.inputs.insert(both.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
    both.outputs = {match_->OnlyReader(sum) == nullptr ? sum : kNoValue, norm.outputs[0], norm.outputs[1]};
    both.attributes = norm.attributes;
    const ValueType wide = graph_.type(sum);
    if (!HasKernel(both, {wide, wide, graph_.type(norm.outputs[1])})) return;
    Remove(at);
    replaced_.emplace(sum_at, [this, both, like = norm]() mutable { Append(std::move(both), like); });
  }

  // The sum into which alone the result of a gradient goes, if its other operand exists by then; -1 if there is none.
  int SumAfter(int at) const {
    const Node& norm = NodeAt(at);
    const Node* const reader = IsRead(norm.outputs[0]) ? match_->OnlyReader(norm.outputs[0]) : nullptr;
    if (reader == nullptr || !IsSum(*reader) || reader->device != norm.device) return -1;
    const int sum = match_->Producer(reader->outputs[0]);
    const ValueId other = reader->inputs[reader->inputs[0] == norm.outputs[0] ? 1 : 0];
    if (claimed_.contains(sum) || match_->Producer(other) >= at || Narrow(other) != other || FusesWithSum(other)) return -1;
    return sum;
  }

  void FuseGradient(int at) {
    const Node& norm = NodeAt(at);
    if (!IsOwn(norm, "LayerNormGrad") || !IsFloat(norm.inputs[1])) return;
    Node fused{.op = "SumLayerNormGrad", .domain = std::string(kGradloomDomain)};
    fused.inputs = {norm.inputs[0], kNoValue, norm.inputs[1], norm.inputs[2], kNoValue};
    if (const int before = SumBefore(norm); before >= 0) {
      const auto operands = *Operands(NodeAt(before));
      fused.inputs[0] = operands.second;
      fused.inputs[1] = operands.first;
    }
    fused.outputs = norm.outputs;
    fused.outputs.resize(4, kNoValue);
    const int after = SumAfter(at);
    if (after >= 0) {
      const Node& sum = NodeAt(after);
      fused.inputs[4] = sum.inputs[sum.inputs[0] == norm.outputs[0] ? 1 : 0];
      fused.outputs[0] = sum.outputs[0];
    }
    const ValueId result = fused.outputs[0];
    const std::vector<int> casts = result == kNoValue ? std::vector<int>() : match_->NarrowingCasts(result);
    const DType to = casts.empty() ? DType::kBfloat16 : b_.dtype(NodeAt(casts[0]).outputs[0]);
    if (casts.empty() && fused.inputs[1] == kNoValue && fused.inputs[4] == kNoValue) return;
    fused.attributes = norm.attributes;
    fused.attributes.set("to", static_cast<int64_t>(to));
    const ValueType wide = graph_.type(norm.inputs[1]), row = graph_.type(norm.inputs[2]);
    if (!HasKernel(fused, {wide, row, row, {to, wide.shape}})) return;

    if (fused.inputs[1] != kNoValue) claimed_.insert(match_->Producer(norm.inputs[0]));
    if (after >= 0) Remove(after);
    if (!casts.empty()) {
      const Value& wide_result = graph_.value(result);
      fused.outputs[3] = graph_.AddValue(wide_result.name + "/" + std::string(DTypeName(to)), to, wide_result.shape, wide_result.role);
      for (int cast : casts) {
        replaced_.emplace(cast, [this, cast_node = NodeAt(cast), narrow = fused.outputs[3]] {
          const ValueId made = cast_node.outputs[0];
          Append({.op = "Reshape", .inputs = {narrow, b_.Ints(b_.shape(made).dims())}, .outputs = {made}}, cast_node);
        });
      }
    }
    replaced_.emplace(at, [this, fused, like = norm]() mutable { Append(std::move(fused), like); });
  }

  // The sum that a gradient alone reads and that is worth fusing; -1 if there is none.
  int SumBefore(const Node& norm) const {
    const int at = match_->Producer(norm.inputs[0]);
    if (at < 0 || claimed_.contains(at) || replaced_.contains(at) || match_->OnlyReader(norm.inputs[0]) == nullptr) return -1;
    const Node& sum = NodeAt(at);
    return IsSum(sum) && sum.phase == norm.phase && sum.device == norm.device && Operands(sum) ? at : -1;
  }

  std::set<int> claimed_;  // positions of sums that are fused into the gradient that reads them
};

// Where a residual is the result of a normalization, the next sum normalizes again, so that the result is in memory in 16 bits only. What
// both normalizations read is in memory for the gradients.
void NormalizeResidualsAgain(Graph& graph) {
  const GraphMatch match(graph);
  for (Node& norm : graph.nodes) {
    if (norm.op != "SumLayerNorm" || norm.domain != kGradloomDomain) continue;
    const ValueId residual = norm.inputs[0];
    const int at = match.Producer(residual);
    if (at < 0 || match.OnlyReader(residual) == nullptr) continue;
    Node& before = graph.nodes[static_cast<size_t>(at)];
    const bool of_sum = before.op == "SumLayerNorm";
    if (before.domain != kGradloomDomain || !(of_sum || before.op == "LayerNormCast") || before.outputs[of_sum ? 1 : 0] != residual ||
        before.phase != norm.phase || before.device != norm.device || before.attributes.Int("axis", -1) != norm.attributes.Int("axis", -1))
      continue;
    const ValueId again = of_sum ? before.outputs[0] : before.inputs[0];
    if (again == kNoValue || (!of_sum && match.num_readers(again) < 2)) continue;
    const size_t scale = of_sum ? 2 : 1;
    Node made = norm;
    made.inputs.resize(6, kNoValue);
    made.inputs[0] = again;
    made.inputs[4] = before.inputs[scale];
    if (before.inputs.size() > scale + 1) made.inputs[5] = before.inputs[scale + 1];
    made.attributes.set("inner_epsilon", before.attributes.Float("epsilon", 1e-5));
    const ValueType wide = graph.type(again);
    if (!HasOwnKernel(graph, made, {wide, wide, graph.type(norm.outputs[2])}, DeviceKind::kCuda)) continue;
    norm = std::move(made);
    before.outputs[of_sum ? 1 : 0] = kNoValue;
  }
}

// Results that only casts have read are no longer written.
void DropUnread(Graph& graph) {
  const GraphMatch match(graph);
  for (Node& node : graph.nodes) {
    if (node.op != "SumLayerNormGrad" || node.domain != kGradloomDomain || node.outputs[0] == kNoValue || node.outputs[3] == kNoValue)
      continue;
    if (!match.IsKept(node.outputs[0]) && match.num_readers(node.outputs[0]) == 0) node.outputs[0] = kNoValue;
  }
}

}  // namespace

void FuseNormSums(GraphBuilder& builder, bool forward) {
  SumFuser(builder).Run(forward);
  NormalizeResidualsAgain(builder.graph());
  DropUnread(builder.graph());
}

}  // namespace gradloom

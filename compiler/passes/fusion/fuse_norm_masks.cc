#include "compiler/passes/fusion/fuse_norm_masks.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/passes/fusion/fuse_pointwise.h"
#include "compiler/passes/position_rewriter.h"
#include "compiler/passes/schedule/choose_kernels.h"

namespace gradloom {
namespace {

// `gradient`, but 0 where `value` is at or below `low`, or at or above `high`.
struct Mask {
  ValueId value = kNoValue, gradient = kNoValue;
  std::optional<double> low, high;

  bool IsOfRelu() const { return low == 0.0 && !high; }
};

class MaskFuser : public PositionRewriter {
 public:
  explicit MaskFuser(GraphBuilder& builder) : PositionRewriter(builder) {}

  void Run() { Visit(&MaskFuser::Fuse); }

 private:
  // The node that makes a value, if it is this operator of ONNX; otherwise null.
  const Node* Made(ValueId id, std::string_view op) const {
    const int at = match_->Producer(id);
    return at >= 0 && NodeAt(at).op == op && NodeAt(at).domain.empty() ? &NodeAt(at) : nullptr;
  }

  std::optional<double> Number(ValueId id) const {
    const Tensor* const data = graph_.value(id).role == Role::kConst ? graph_.data(id) : nullptr;
    if (data == nullptr || data->elements() != 1 || !IsFloating(data->dtype())) return std::nullopt;
    return ElementAsDouble(data->view(), 0);
  }

  // The mask that makes a value, of all nested ones that nothing else reads.
  std::optional<Mask> MaskOf(ValueId masked) const {
    Mask mask;
    const ValueType type = graph_.type(masked);
    for (ValueId id = masked; id == masked || match_->OnlyReader(id) != nullptr; id = mask.gradient) {
      const Node* const where = Made(id, "Where");
      if (where == nullptr || graph_.type(where->inputs[2]) != type) break;
      const std::optional<double> zero = Number(where->inputs[1]);
      if (!zero || *zero != 0 || std::signbit(*zero)) break;
      const Node* const below = Made(where->inputs[0], "LessOrEqual");
      const Node* const compared = below != nullptr ? below : Made(where->inputs[0], "GreaterOrEqual");
      if (compared == nullptr || graph_.type(compared->inputs[0]) != type) break;
      const std::optional<double> limit = Number(compared->inputs[1]);
      std::optional<double>& bound = below != nullptr ? mask.low : mask.high;
      if (!limit || bound || (mask.value != kNoValue && mask.value != compared->inputs[0])) break;
      bound = limit;
      mask.value = compared->inputs[0];
      mask.gradient = where->inputs[2];
    }
    return mask.value == kNoValue ? std::nullopt : std::optional(mask);
  }

  // The operand of a cast, or the value itself if it has float32 without one.
  ValueId Uncast(ValueId id) const {
    const Node* const cast = Made(id, "Cast");
    return cast == nullptr ? id : cast->inputs[0];
  }

  // The statistics from which `id` is the normalized operand of this gradient, as split_batch_norm writes it; otherwise null.
  const Node* LineOf(ValueId id, const Node& norm) const {
    const Node* const sum = Made(Uncast(id), "Add");
    const Node* const product = sum == nullptr ? nullptr : Made(sum->inputs[0], "Mul");
    const Node* const distance = product == nullptr ? nullptr : Made(product->inputs[0], "Sub");
    if (distance == nullptr || Uncast(distance->inputs[0]) != norm.inputs[1]) return nullptr;
    const int at = match_->Producer(sum->inputs[1]);
    if (at < 0 || NodeAt(at).op != "BatchNormLine" || NodeAt(at).domain != kGradloomDomain) return nullptr;
    const std::vector<ValueId>& made = NodeAt(at).outputs;
    // The centre has the bits of the mean.
    const bool fits = NodeAt(at).inputs[0] == norm.inputs[1] && made[0] == norm.inputs[3] && made[3] == distance->inputs[1] &&
                      made[4] == product->inputs[1] && made[5] == sum->inputs[1] && graph_.value(made[3]).dtype == DType::kFloat32 &&
                      graph_.value(distance->outputs[0]).dtype == DType::kFloat32;
    return fits ? &NodeAt(at) : nullptr;
  }

  // Whether pointwise fusion would compute a value in one launch with its only reader.
  bool FusesWithReader(ValueId id) const {
    const int at = match_->Producer(id);
    return at >= 0 && match_->OnlyReader(id) != nullptr && CanFuse(graph_, NodeAt(at));
  }

  // With the mask computed again; nullopt if that is not possible.
  std::optional<Node> Remasked(const Node& norm, const Mask& mask) const {
    if (match_->OnlyReader(norm.inputs[0]) == nullptr) return std::nullopt;
    const Node* const relu = mask.IsOfRelu() ? Made(mask.value, "Relu") : nullptr;
    const Node* const line = LineOf(relu != nullptr ? relu->inputs[0] : mask.value, norm);
    if (line == nullptr) return std::nullopt;
    return Masked(norm, mask, {mask.gradient, kNoValue, kNoValue}, {line->outputs[4], line->outputs[5]});
  }

  // With the mask from a ReLU's result; nullopt if that would not save a pass.
  std::optional<Node> MaskedByResult(const Node& norm, const Mask& mask) const {
    if (!mask.IsOfRelu() || Made(mask.value, "Relu") == nullptr) return std::nullopt;
    std::vector<ValueId> operands{mask.gradient, kNoValue, mask.value};
    if (FusesWithReader(mask.gradient)) {
      const Node* const sum = Made(mask.gradient, "Add");
      if (sum == nullptr) return std::nullopt;
      for (ValueId id : sum->inputs) {
        if (graph_.type(id) != graph_.type(mask.gradient) || FusesWithReader(id)) return std::nullopt;
      }
      operands = {sum->inputs[0], sum->inputs[1], mask.value};
    }
    std::optional<Node> node = Masked(norm, mask, std::move(operands), {});
    node->outputs.push_back(norm.inputs[0]);
    return node;
  }

  Node Masked(const Node& norm, const Mask& mask, std::vector<ValueId> operands, const std::vector<ValueId>& line) const {
    Node node{.op = "MaskedBatchNormGrad", .domain = std::string(kGradloomDomain), .inputs = std::move(operands), .outputs = norm.outputs};
    node.inputs.insert(node.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
    node.inputs.insert(node.inputs.end(), line.begin(), line.end());
    node.outputs.resize(3, kNoValue);
    if (mask.low) node.attributes.set("low", *mask.low);
    if (mask.high) node.attributes.set("high", *mask.high);
    node.phase = norm.phase;
    node.origin = norm.origin;
    return node;
  }

  void Fuse(int at) {
    const Node& norm = NodeAt(at);
    if (norm.op != "BatchNormTrainGrad" || norm.domain != kGradloomDomain) return;
    const ValueType x = graph_.type(norm.inputs[1]);
    const bool narrow = Is16BitFloat(x.dtype);
    if ((!narrow && x.dtype != DType::kFloat32) || graph_.type(norm.inputs[0]) != x) return;
    for (size_t i : {2, 3, 4}) {
      if (graph_.value(norm.inputs[i]).dtype != DType::kFloat32) return;
    }
    // Where the mask is: nodes before the gradient may read the masked value.
    const int where = match_->Producer(norm.inputs[0]);
    if (where < 0 || replaced_.contains(where) || NodeAt(where).phase != norm.phase || NodeAt(where).device != norm.device) return;
    const std::optional<Mask> mask = MaskOf(norm.inputs[0]);
    if (!mask) return;
    std::optional<Node> fused = Remasked(norm, *mask);
    if (!fused) fused = MaskedByResult(norm, *mask);
    const ValueType channels = graph_.type(norm.inputs[2]);
    if (!fused || !HasOwnKernel(graph_, *fused, {x, channels, channels, x}, DeviceKind::kCuda)) return;
    Remove(at);
    replaced_.emplace(where, [this, node = *std::move(fused)]() mutable { graph_.AddNode(std::move(node)); });
  }
};

}  // namespace

void FuseNormMasks(GraphBuilder& builder) { MaskFuser(builder).Run(); }

}  // namespace gradloom

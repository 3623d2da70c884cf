#include "compiler/passes/patterns/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/graph_match.h"
#include "compiler/passes/known_values.h"
#include "compiler/passes/patterns/causal_mask.h"
#include "runtime/base/attention_form.h"

namespace gradloom {
namespace {

using Permutation = std::vector<int64_t>;

const Permutation kHeadsFirst = {0, 2, 1, 3};  // from [batch, length, heads, size], and back
const Permutation kKept = {0, 1, 2, 3};
// Masks of the same scores, one after the other.
constexpr size_t kMaxMasks = 4;

// An operand of a product: factor * Transpose(value, perm).
struct Source {
  ValueId value = kNoValue;
  Permutation perm = kKept;
  double factor = 1;
};

struct Match {
  Source q, k, v;                                                   // as [batch, heads, length, size] each
  ValueId flat_q = kNoValue, flat_k = kNoValue, flat_v = kNoValue;  // [batch, length, heads * size], if all of these and the result have it
  int64_t heads = 0;
  double scale = 1;
  MaskParts mask;
  std::optional<Node> dropout;  // of the probabilities
  ValueId result = kNoValue;
  std::string origin;
};

class Fuser {
 public:
  Fuser(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options)
      : b_(builder), graph_(builder.graph()), match_(graph_), known_(graph_, match_), masks_(builder, match_, known_), options_(options) {
    trained_.resize(static_cast<size_t>(graph_.num_values()));
    for (ValueId id : parameters) trained_[static_cast<size_t>(id)] = true;
    for (const Node& node : graph_.nodes) {
      bool any = false;
      ForEachUse(node, [&](ValueId id) { any = any || trained_[static_cast<size_t>(id)]; });
      for (ValueId id : node.outputs) {
        if (id != kNoValue) trained_[static_cast<size_t>(id)] = any;
      }
    }
  }

  void Run() {
    ReplaceMatches(
        graph_, match_, [&](const Node& node) { return MatchProduct(node); }, [&](const Match& match) { Emit(match); });
  }

  // Divides the masks of operators that the file has.
  void RunOnOperators() {
    ReplaceMatches(
        graph_, match_, [&](const Node& node) { return MatchOperator(node); }, [&](const MaskedOperator& match) { Emit(match); });
  }

 private:
  // Strips one multiplication or division by a number from a value: returns what remains, or kNoValue.
  ValueId WithoutFactor(ValueId id, double& factor) const {
    id = match_.Plain(id);
    for (const char* op : {"Mul", "Div"}) {
      const Node* node = match_.ProducedBy(id, op);
      if (node == nullptr) continue;
      for (size_t i : {size_t{0}, size_t{1}}) {
        const std::optional<double> number = known_.Uniform(node->inputs[1 - i]);
        if (!number || *number == 0 || !std::isfinite(*number) || b_.shape(node->inputs[i]) != b_.shape(id)) continue;
        if (op[0] == 'D' && i == 1) continue;
        factor = op[0] == 'D' ? factor / *number : factor * *number;
        return node->inputs[i];
      }
    }
    return kNoValue;
  }

  Source SourceOf(ValueId id) const {
    Source source{.value = id};
    for (;;) {
      if (const ValueId rest = WithoutFactor(source.value, source.factor); rest != kNoValue) {
        source.value = rest;
        continue;
      }
      const Node* node = match_.ProducedBy(source.value, "Transpose");
      if (node == nullptr) return source;
      const std::vector<int64_t> perm = node->attributes.Ints("perm");
      if (perm.size() != 4) return source;
      Permutation both(4);
      for (size_t i = 0; i < 4; ++i) both[i] = perm[static_cast<size_t>(source.perm[i])];
      source.perm = both;
      source.value = node->inputs[0];
    }
  }

  // Returns the value [batch, length, heads * size] that a source [batch, heads, length, size] is a view of, or kNoValue.
  ValueId FlatSource(const Source& source) const {
    const Node* node = source.perm == kHeadsFirst ? match_.ProducedBy(source.value, "Reshape") : nullptr;
    if (node == nullptr) return kNoValue;
    const Shape shape = b_.shape(source.value);  // [batch, length, heads, size]
    return b_.shape(node->inputs[0]) == Shape{shape[0], shape[1], shape[2] * shape[3]} ? node->inputs[0] : kNoValue;
  }

  // Whether only one node reads a value and it is not kept, and the same for the value behind its Identity nodes.
  bool OnlyRead(ValueId id) const {
    return match_.OnlyReader(id) != nullptr && (match_.Plain(id) == id || match_.OnlyReader(match_.Plain(id)) != nullptr);
  }

  // Exporters give a Dropout's mask a name even if nothing reads it.
  bool IsMaskRead(const Node& dropout) const {
    const ValueId mask = dropout.outputs.size() > 1 ? dropout.outputs[1] : kNoValue;
    return mask != kNoValue && (match_.IsKept(mask) || match_.num_readers(mask) > 0);
  }

  // Returns the Dropout of the probabilities; null if there is none.
  const Node* Dropout(ValueId id) const {
    const Node* node = match_.ProducedBy(id, "Dropout", kGradloomDomain);
    return node != nullptr && b_.shape(id) == b_.shape(node->inputs[0]) ? node : nullptr;
  }

  // Returns the Softmax that computes the probabilities, also through the guard Where(IsNaN(p), 0, p), if nothing else reads its result.
  const Node* Probabilities(ValueId id) const {
    if (!OnlyRead(id)) return nullptr;
    id = match_.Plain(id);
    const Node* guard = match_.ProducedBy(id, "Where");
    if (guard == nullptr) return match_.ProducedBy(id, "Softmax");
    const ValueId p = guard->inputs[2];
    const Node* is_nan = match_.ProducedBy(guard->inputs[0], "IsNaN");
    if (is_nan == nullptr || is_nan->inputs[0] != p || known_.Uniform(guard->inputs[1]) != 0.0 || b_.shape(p) != b_.shape(id))
      return nullptr;
    return match_.IsKept(p) || match_.num_readers(p) != 2 ? nullptr : match_.ProducedBy(p, "Softmax");
  }

  // Returns the scores before masking and sets `masks`, the first of which is applied to these scores. All kinds of masks have the extent
  // of the scores along the keys.
  ValueId Unmasked(ValueId id, std::vector<ScoreMask>& masks) const {
    for (ScoreMask mask; masks.size() < kMaxMasks; mask = {}) {
      const ValueId below = WithoutMask(id, mask);
      if (below == id) break;
      masks.insert(masks.begin(), mask);
      id = below;
    }
    return id;
  }

  // The same for one mask; returns `id` if there is none.
  ValueId WithoutMask(ValueId id, ScoreMask& mask) const {
    const Shape shape = b_.shape(id);
    const auto masks = [&](ValueId m) {
      const Shape of = b_.shape(m);
      if (of.rank() == 0 || of[of.rank() - 1] != shape[3]) return false;
      if (!trained_[static_cast<size_t>(m)]) return true;
      // Only for these shapes do fast kernels compute the gradient of the mask.
      return options_.trained_masks && (shape[1] == 1 || (of.rank() >= 3 && of[of.rank() - 3] == shape[1]));
    };
    if (const Node* node = match_.ProducedBy(id, "Add")) {
      for (size_t i : {size_t{0}, size_t{1}}) {
        const ValueId scores = node->inputs[i], m = node->inputs[1 - i];
        if (b_.shape(scores) != shape || !masks(m) || !AreScores(scores)) continue;
        mask.added = m;
        return scores;
      }
    }
    if (const Node* node = match_.ProducedBy(id, "Where")) {
      for (size_t i : {size_t{1}, size_t{2}}) {
        const std::optional<double> hidden = known_.Uniform(node->inputs[3 - i]);
        if (!hidden || !HidesKeys(*hidden) || b_.shape(node->inputs[i]) != shape || !masks(node->inputs[0])) continue;
        mask.condition = node->inputs[0];
        mask.shows = i == 1;
        mask.hidden = *hidden;
        return node->inputs[i];
      }
    }
    return id;
  }

  // Whether a value is a product, perhaps multiplied by numbers, perhaps masked.
  bool AreScores(ValueId id, size_t masks = 1) const {
    double factor = 1;
    ValueId product = id;
    for (ValueId rest; (rest = WithoutFactor(product, factor)) != kNoValue;) product = rest;
    if (match_.ProducedBy(product, "MatMul") != nullptr) return true;
    if (masks == kMaxMasks) return false;
    for (const char* op : {"Add", "Where"}) {
      const Node* const node = match_.ProducedBy(id, op);
      if (node == nullptr) continue;
      return std::any_of(node->inputs.begin(), node->inputs.end(), [&](ValueId operand) {
        return b_.shape(operand) == b_.shape(id) && b_.dtype(operand) == b_.dtype(id) && AreScores(operand, masks + 1);
      });
    }
    return false;
  }

  std::optional<Match> MatchProduct(const Node& product) const {
    if (product.op != "MatMul" || !product.domain.empty()) return std::nullopt;
    const ValueId y = product.outputs[0];
    if (b_.dtype(y) != DType::kFloat32 || b_.shape(y).rank() != 4 || b_.shape(y).elements() == 0) return std::nullopt;
    const Node* const dropout = Dropout(product.inputs[0]);
    if (dropout != nullptr && (IsMaskRead(*dropout) || !OnlyRead(product.inputs[0]))) return std::nullopt;
    const Node* softmax = Probabilities(dropout != nullptr ? dropout->inputs[0] : product.inputs[0]);
    if (softmax == nullptr) return std::nullopt;
    const int64_t axis = softmax->attributes.Int("axis", -1);
    const Shape scores = b_.shape(softmax->outputs[0]);
    if (scores.rank() != 4 || (axis != -1 && axis != 3)) return std::nullopt;
    Match match{.heads = scores[1], .result = y, .origin = softmax->origin};
    if (dropout != nullptr) match.dropout = *dropout;
    std::vector<ScoreMask> masks;
    ValueId below = Unmasked(softmax->inputs[0], masks);
    for (ValueId rest; (rest = WithoutFactor(below, match.scale)) != kNoValue;) below = rest;
    const Node* first = match_.ProducedBy(below, "MatMul");
    if (first == nullptr) return std::nullopt;
    for (ValueId id : {first->inputs[0], first->inputs[1], product.inputs[1]}) {
      const Shape shape = b_.shape(id);
      if (shape.rank() != 4 || shape[0] != scores[0] || shape[1] != scores[1]) return std::nullopt;
    }
    match.q = SourceOf(first->inputs[0]);
    match.k = SourceOf(first->inputs[1]);
    std::swap(match.k.perm[2], match.k.perm[3]);
    match.v = SourceOf(product.inputs[1]);
    if (match.v.factor != 1) match.v = {.value = product.inputs[1]};
    match.scale *= match.q.factor * match.k.factor;
    std::optional<MaskParts> parts = masks_.Divide(masks, scores);
    if (!parts) return std::nullopt;
    match.mask = *std::move(parts);
    const int64_t fewest = match.dropout ? options_.fewest_causal_dropped : options_.fewest_causal;
    if (fewest > 0 && (!match.mask.causal || scores[3] < fewest)) return std::nullopt;
    MatchFlattened(match);
    return match;
  }

  // Uses operands and result of shape [batch, length, heads * size], if all of them have that form.
  void MatchFlattened(Match& match) const {
    const Shape y = b_.shape(match.result);
    const Node* transpose = match_.OnlyReader(match.result);
    if (transpose == nullptr || transpose->op != "Transpose" || transpose->attributes.Ints("perm") != kHeadsFirst) return;
    const Node* reshape = match_.OnlyReader(transpose->outputs[0]);
    if (reshape == nullptr || reshape->op != "Reshape" || b_.shape(reshape->outputs[0]) != Shape{y[0], y[2], y[1] * y[3]}) return;
    const ValueId q = FlatSource(match.q), k = FlatSource(match.k), v = FlatSource(match.v);
    if (q == kNoValue || k == kNoValue || v == kNoValue) return;
    match.flat_q = q;
    match.flat_k = k;
    match.flat_v = v;
    match.result = reshape->outputs[0];
  }

  ValueId Transposed(const Source& source) { return source.perm == kKept ? source.value : b_.Transpose(source.value, source.perm); }

  // The mask operand of Attention; kNoValue: none.
  ValueId MaskOperand(const MaskParts& parts) {
    if (!parts.mask) return AllOf(parts.visible);
    const ScoreMask& mask = *parts.mask;
    if (mask.condition == kNoValue) return mask.added;
    if (std::isinf(mask.hidden)) return mask.shows ? mask.condition : b_.Op("Not", {mask.condition});
    // A finite number that exceeds every score in magnitude.
    const ValueId zero = b_.Scalar(0, DType::kFloat32), hidden = b_.Scalar(mask.hidden, DType::kFloat32);
    return mask.shows ? b_.Where(mask.condition, zero, hidden) : b_.Where(mask.condition, hidden, zero);
  }

  // A condition that holds where all of these do.
  ValueId AllOf(const std::vector<KeyCondition>& conditions) {
    ValueId all = kNoValue;
    for (const KeyCondition& each : conditions) {
      ValueId one = b_.shape(each.value) == each.shape ? each.value : b_.Reshape(each.value, each.shape);
      if (!each.holds) one = b_.Op("Not", {one});
      all = all == kNoValue ? one : b_.Op("And", {all, one});
    }
    return all;
  }

  // An Attention whose mask hides later keys.
  struct MaskedOperator {
    Node node;
    MaskParts mask;
    ValueId result = kNoValue;
  };

  std::optional<MaskedOperator> MatchOperator(const Node& node) const {
    if (node.op != "Attention" || !node.domain.empty() || node.inputs.size() <= attention::kMask) return std::nullopt;
    const ValueId mask = node.inputs[attention::kMask];
    const bool more = std::any_of(node.inputs.begin() + attention::kMask + 1, node.inputs.end(), [](ValueId id) { return id != kNoValue; });
    if (mask == kNoValue || more || node.outputs.size() != 1 || node.attributes.Int("is_causal", 0) != 0) return std::nullopt;
    if (trained_[static_cast<size_t>(mask)]) return std::nullopt;
    const Shape q = b_.shape(node.inputs[0]), k = b_.shape(node.inputs[1]), of = b_.shape(mask);
    const int64_t heads = q.rank() == 4 ? q[1] : node.attributes.Int("q_num_heads", 1);
    const Shape scores{q[0], heads, q[q.rank() - 2], k[k.rank() - 2]};
    if (of.rank() == 0 || of[of.rank() - 1] != scores[3]) return std::nullopt;
    ScoreMask given;
    if (b_.dtype(mask) == DType::kBool) {
      given.condition = mask;
      given.hidden = -std::numeric_limits<double>::infinity();
    } else {
      given.added = mask;
    }
    std::optional<MaskParts> parts = masks_.Divide({given}, scores);
    if (!parts || !parts->causal) return std::nullopt;
    return MaskedOperator{node, *std::move(parts), node.outputs[0]};
  }

  void Emit(const MaskedOperator& match) {
    b_.set_origin(match.node.origin);
    Node node = match.node;
    node.attributes.set("is_causal", int64_t{1});
    node.inputs[attention::kMask] = MaskOperand(match.mask);
    while (node.inputs.back() == kNoValue) node.inputs.pop_back();
    graph_.AddNode(std::move(node));
  }

  // Adds the node that computes the result, which keeps its name.
  void Emit(const Match& match) {
    b_.set_origin(match.origin);
    Node node{.op = "Attention", .outputs = {match.result}, .origin = match.origin};
    if (match.dropout) {
      node.op = "AttentionDropout";
      node.domain = kGradloomDomain;
      node.attributes = match.dropout->attributes;
    }
    node.attributes.set("scale", match.scale);
    if (match.mask.causal) node.attributes.set("is_causal", int64_t{1});
    if (match.flat_q != kNoValue) {
      node.inputs = {match.flat_q, match.flat_k, match.flat_v};
      node.attributes.set("q_num_heads", match.heads);
      node.attributes.set("kv_num_heads", match.heads);
    } else {
      node.inputs = {Transposed(match.q), Transposed(match.k), Transposed(match.v)};
    }
    if (const ValueId mask = MaskOperand(match.mask); mask != kNoValue) node.inputs.push_back(mask);
    if (match.dropout) {
      node.inputs.resize(attention::kInputs, kNoValue);
      node.inputs.insert(node.inputs.end(), match.dropout->inputs.begin() + 1, match.dropout->inputs.end());
    }
    graph_.AddNode(std::move(node));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
  const KnownValues known_;
  const CausalMasks masks_;
  const AttentionOptions options_;
  std::vector<bool> trained_;  // whether a value depends on a parameter, by value id
};

}  // namespace

void FuseAttention(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options) {
  Fuser(builder, parameters, options).Run();
  // Of the operators that were just made, too, none has a mask that hides later keys.
  Fuser(builder, parameters, options).RunOnOperators();
}

}  // namespace gradloom

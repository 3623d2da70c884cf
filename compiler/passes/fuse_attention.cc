#include "compiler/passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/choose_kernels.h"
#include "compiler/passes/graph_match.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

using Permutation = std::vector<int64_t>;

const Permutation kHeadsFirst = {0, 2, 1, 3};  // from [batch, length, heads, size], and back
const Permutation kKept = {0, 1, 2, 3};
// Adding a finite number below this to a score yields that number, and hides the key if any other score is not hidden.
constexpr double kHiddenScore = -1e30;
// Limits on the elements and operators of a value that is evaluated at compile time.
constexpr int64_t kMaxKnownElements = int64_t{1} << 22;
constexpr int kMaxKnownDepth = 32;
constexpr size_t kAttentionInputs = 7;

// An operand of a product: factor * Transpose(value, perm).
struct Source {
  ValueId value = kNoValue;
  Permutation perm = kKept;
  double factor = 1;
};

struct Mask {
  ValueId added = kNoValue;
  ValueId condition = kNoValue;  // selects the hidden scores
  bool shows = true;             // the condition is true for visible keys
  double hidden = 0;
  bool causal = false;  // hides exactly the later keys
};

struct Match {
  Source q, k, v;                                                   // as [batch, heads, length, size] each
  ValueId flat_q = kNoValue, flat_k = kNoValue, flat_v = kNoValue;  // [batch, length, heads * size], if all of these and the result have it
  int64_t heads = 0;
  double scale = 1;
  Mask mask;
  std::optional<Node> dropout;  // of the probabilities
  ValueId result = kNoValue;
  std::string origin;
};

class Fuser {
 public:
  Fuser(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options)
      : b_(builder), graph_(builder.graph()), match_(graph_), options_(options) {
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

 private:
  // Returns the elements of a constant or of a value computed only from constants; null if they are not known.
  const Tensor* Known(ValueId id, int depth = 0) const {
    if (id == kNoValue || b_.shape(id).elements() > kMaxKnownElements) return nullptr;
    if (graph_.value(id).role == Role::kConst) return graph_.data(id);
    if (match_.Producer(id) < 0 || depth == kMaxKnownDepth) return nullptr;
    if (const auto found = known_.find(id); found != known_.end()) return found->second.defined() ? &found->second : nullptr;
    Tensor& known = known_[id];
    const Node& node = graph_.nodes[static_cast<size_t>(match_.Producer(id))];
    const Op* op = FindOp(node.domain, node.op);
    if (op == nullptr || op->has(kRandom) || !node.regions.empty() || node.outputs.size() != 1) return nullptr;
    if (FindReference(node.domain, node.op) == nullptr) return nullptr;
    std::vector<Tensor> inputs;
    for (ValueId input : node.inputs) {
      const Tensor* data = input == kNoValue ? nullptr : Known(input, depth + 1);
      if (input != kNoValue && data == nullptr) return nullptr;
      inputs.push_back(data == nullptr ? Tensor() : *data);
    }
    known = RunReference(CallOf(graph_, node, {}), inputs)[0];
    return &known;
  }

  // Returns the value of a known single element.
  std::optional<double> Uniform(ValueId id) const {
    if (id == kNoValue || b_.shape(id).elements() != 1) return std::nullopt;
    const Tensor* data = Known(id);
    if (data == nullptr) return std::nullopt;
    return ElementAsDouble(data->view(), 0);
  }

  // Strips one multiplication or division by a number from a value: returns what remains, or kNoValue.
  ValueId WithoutFactor(ValueId id, double& factor) const {
    id = match_.Plain(id);
    for (const char* op : {"Mul", "Div"}) {
      const Node* node = match_.ProducedBy(id, op);
      if (node == nullptr) continue;
      for (size_t i : {size_t{0}, size_t{1}}) {
        const std::optional<double> number = Uniform(node->inputs[1 - i]);
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
    if (is_nan == nullptr || is_nan->inputs[0] != p || Uniform(guard->inputs[1]) != 0.0 || b_.shape(p) != b_.shape(id)) return nullptr;
    return match_.IsKept(p) || match_.num_readers(p) != 2 ? nullptr : match_.ProducedBy(p, "Softmax");
  }

  // Returns the scores before masking and sets `mask`. Both kinds of mask have the extent of the scores along the keys.
  ValueId Unmasked(ValueId id, Mask& mask) const {
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
        if (b_.shape(scores) != shape || !masks(m) || !ComesFromProduct(scores)) continue;
        mask.added = m;
        return scores;
      }
    }
    if (const Node* node = match_.ProducedBy(id, "Where")) {
      for (size_t i : {size_t{1}, size_t{2}}) {
        const std::optional<double> hidden = Uniform(node->inputs[3 - i]);
        if (!hidden || *hidden > kHiddenScore || b_.shape(node->inputs[i]) != shape || !masks(node->inputs[0])) continue;
        // If every key of a row is hidden by a finite number, the scores are that number and have no gradient; adding the number would give
        // them one.
        if (std::isfinite(*hidden) && !EachRowHasVisibleKey(node->inputs[0], i == 1)) continue;
        mask.condition = node->inputs[0];
        mask.shows = i == 1;
        mask.hidden = *hidden;
        return node->inputs[i];
      }
    }
    return id;
  }

  // Whether the condition, whose last axis is the keys, is known and shows at least one key in each row.
  bool EachRowHasVisibleKey(ValueId condition, bool shown) const {
    const Tensor* known = Known(condition);
    if (known == nullptr) return false;
    const auto elements = known->as<bool>();
    const auto keys = known->shape()[known->shape().rank() - 1];
    for (auto row = elements.begin(); row != elements.end(); row += keys) {
      if (std::find(row, row + keys, shown) == row + keys) return false;
    }
    return true;
  }

  bool ComesFromProduct(ValueId id) const {
    double factor = 1;
    for (ValueId rest; (rest = WithoutFactor(id, factor)) != kNoValue;) id = rest;
    return match_.ProducedBy(id, "MatMul") != nullptr;
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
    ValueId below = Unmasked(softmax->inputs[0], match.mask);
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
    MatchMask(match.mask, scores);
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

  // Whether a mask [..., queries, keys] hides exactly the later keys.
  template <typename Hides, typename Shows>
  static bool IsCausal(const Tensor& mask, int64_t queries, int64_t keys, Hides hides, Shows shows) {
    const Shape& shape = mask.shape();
    if (queries != keys || shape.rank() < 2 || shape[shape.rank() - 2] != queries || shape[shape.rank() - 1] != keys) return false;
    const TensorView view = mask.view();
    const int64_t rows = mask.elements() / std::max<int64_t>(keys, 1);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t key = 0; key < keys; ++key) {
        const double element = ElementAsDouble(view, row * keys + key);
        if (key > row % queries ? !hides(element) : !shows(element)) return false;
      }
    }
    return true;
  }

  void MatchMask(Mask& mask, const Shape& scores) const {
    const bool adds = mask.added != kNoValue;
    const Tensor* known = Known(adds ? mask.added : mask.condition);
    if (known == nullptr) return;
    if (adds) {
      mask.causal = IsCausal(
          *known, scores[2], scores[3], [](double m) { return m <= kHiddenScore; }, [](double m) { return m == 0; });
    } else {
      const double shown = mask.shows ? 1 : 0;
      mask.causal = IsCausal(
          *known, scores[2], scores[3], [&](double m) { return m != shown; }, [&](double m) { return m == shown; });
    }
  }

  ValueId Transposed(const Source& source) { return source.perm == kKept ? source.value : b_.Transpose(source.value, source.perm); }

  ValueId MaskOperand(const Mask& mask) {
    if (mask.causal) return kNoValue;
    if (mask.condition == kNoValue) return mask.added;
    if (std::isinf(mask.hidden)) return mask.shows ? mask.condition : b_.Op("Not", {mask.condition});
    // A finite number that exceeds every score in magnitude.
    const ValueId zero = b_.Scalar(0, DType::kFloat32), hidden = b_.Scalar(mask.hidden, DType::kFloat32);
    return mask.shows ? b_.Where(mask.condition, zero, hidden) : b_.Where(mask.condition, hidden, zero);
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
      node.inputs.resize(kAttentionInputs, kNoValue);
      node.inputs.insert(node.inputs.end(), match.dropout->inputs.begin() + 1, match.dropout->inputs.end());
    }
    graph_.AddNode(std::move(node));
  }

  GraphBuilder& b_;
  Graph& graph_;
  const GraphMatch match_;
  const AttentionOptions options_;
  std::vector<bool> trained_;  // whether a value depends on a parameter, by value id
  mutable std::map<ValueId, Tensor> known_;
};

}  // namespace

void FuseAttention(GraphBuilder& builder, const std::vector<ValueId>& parameters, const AttentionOptions& options) {
  Fuser(builder, parameters, options).Run();
}

}  // namespace gradloom

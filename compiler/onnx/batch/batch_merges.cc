// Reshapes in a file for a single sample: if [7,1,8] becomes [7,2,4], the samples may be merged with the 7 or with the 2. Later nodes show
// which: with the wrong choice a product sums over samples, a softmax runs along them, or extents do not match.
#include <algorithm>
#include <cstddef>

#include "compiler/onnx/batch/batch_prover.h"

namespace gradloom {
namespace {

// Attention has three such Reshapes with two possibilities each. Models with many more are something else, and each try costs an import.
constexpr size_t kMaxMerges = 12;
constexpr int kMaxTries = 32;

}  // namespace

bool BatchChanges::HasUnconfirmedChoice() const {
  return std::any_of(merges.begin(), merges.end(), [](const Merge& merge) { return merge.unconfirmed(); });
}

// Changes the last choice that has another possibility and drops later ones, which may not come up again. Evident choices are only varied
// if nothing else helps.
bool BatchChanges::NextCombination() {
  if (merges.empty() || ++tries > kMaxTries) return false;
  for (size_t i = merges.size(); i-- > 0;) {
    if ((merges[i].evident && !varies_evident) || merges[i].taken + 1 == merges[i].ways) continue;
    ++merges[i].taken;
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(i) + 1, merges.end());
    return true;
  }
  if (varies_evident) return false;
  varies_evident = true;
  merges.clear();
  return true;
}

int BatchProver::Merged(const Node& node, const Emitted& was, int axis, const std::vector<int>& ways, bool evident, const std::string& why,
                        bool transposes) {
  const Shape &in = was.inputs[0], &out = was.outputs[0];
  auto merge = std::find_if(found_.merges.begin(), found_.merges.end(),
                            [&](const BatchChanges::Merge& other) { return other.in == in && other.out == out && other.axis == axis; });
  if (merge == found_.merges.end()) {
    // If samples are combined anyway, the possibilities cannot be told apart.
    const bool tell = !combined_ && found_.merges.size() < kMaxMerges;
    if (!tell && (evident || ways.size() == 1)) return ways[0];
    if (!tell) Refuse(node, why);
    if (!evident && !found_.ambiguous) found_.ambiguous = Refusal(node, why);
    merge = found_.merges.insert(merge,
                                 {.in = in, .out = out, .axis = axis, .ways = ways.size(), .evident = evident, .transposes = transposes});
  }
  if (merge->ways != ways.size()) Refuse(node, why);
  return ways[merge->taken];
}

// Whether an operand with several positions for the only sample can be repeated for other samples: in operands that have grown, samples
// follow each other, and no samples have been combined so far.
bool BatchProver::MayTile(const Graph& graph, const Node& node, const Emitted& was) const {
  if (found_.declared != 1 || combined_) return false;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (node.inputs[k] == kNoValue) continue;
    const std::vector<int> grown = BatchAxes(graph.value(node.inputs[k]).shape, was.inputs[k]);
    if (grown.empty()) continue;
    const auto outer = outer_.find(node.inputs[k]);
    if (grown.size() > 1 || was.inputs[k][grown[0]] == 1 || outer == outer_.end() || outer->second != 1) return false;
  }
  return true;
}

// Returns the sharding of an operand; `was`: its shape for a single sample.
Shard BatchProver::ShardOf(const Graph& graph, ValueId id, const Shape& was) const {
  if (const auto found = shards_.find({&graph, id}); found != shards_.end()) return found->second;
  const Value& value = graph.value(id);
  const std::vector<int> axes = BatchAxes(value.shape, was);
  if (axes.empty()) return Shard::Whole();
  // Constants were repeated, or count samples.
  return Shard::Split(axes[0], value.role == Role::kInput ? value.shape[axes[0]] / batch_ : 0);
}

// Values that a file for a single sample computes from all its elements would be computed from those of all samples: the sums of an
// EmbeddingBag, for example, whose loop knows one bag. For a loss that is correct. If each sample reads such a value, it is unclear what
// was meant.
void BatchProver::FollowPooled(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was) {
  const Graph& graph = emitter.graph();
  bool pools = false, grows = false;
  for (size_t i = 0; i < node.inputs.size() && i < was.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const std::vector<int> axes = BatchAxes(graph.value(node.inputs[i]).shape, was.inputs[i]);
    grows = grows || !axes.empty();
    pools = pools || pooled_.contains({&graph, node.inputs[i]}) || (axes.size() == 1 && was.inputs[i][axes[0]] != 1);
  }
  if (!pools) return;
  const bool read = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return pooled_.contains({&graph, id}); });
  if (read && grows)
    Refuse(node, "each sample reads a result of all elements of the single sample, which would become a result of all samples");
  for (size_t i = 0; i < results.size() && i < was.outputs.size(); ++i) {
    if (results[i] == kNoValue || graph.value(results[i]).role == Role::kConst) continue;
    if (graph.value(results[i]).shape == was.outputs[i]) pooled_.insert({&graph, results[i]});
  }
}

// Tracks samples by the rules that divide a batch over devices. If samples are combined in a file whose Reshapes are ambiguous, the current
// choice is given up.
void BatchProver::FollowSamples(const Emitter& emitter, const Node& node, const std::vector<ValueId>& results, const Emitted& was) {
  const Graph& graph = emitter.graph();
  const auto computed = [&](ValueId id) { return id != kNoValue && graph.value(id).role != Role::kConst; };
  // A batch that is taken apart into single samples.
  combined_ = combined_ || results.size() != was.outputs.size();
  if (!combined_ && std::any_of(results.begin(), results.end(), computed)) {
    std::vector<Shard> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(node.inputs[i] == kNoValue || i >= was.inputs.size() ? Shard::Whole()
                                                                            : ShardOf(graph, node.inputs[i], was.inputs[i]));
    }
    std::vector<int> growing;
    for (size_t i = 0; i < results.size(); ++i) {
      const std::vector<int> axes = results[i] == kNoValue ? std::vector<int>() : BatchAxes(graph.value(results[i]).shape, was.outputs[i]);
      combined_ = combined_ || axes.size() > 1;
      growing.push_back(axes.empty() ? -1 : axes[0]);
    }
    try {
      // These become operators with a sharding rule when random numbers are seeded.
      if (IsOneOf(node, {"Dropout"})) {
        for (ValueId id : results) shards_[{&graph, id}] = inputs[0];
        return;
      }
      if (IsDraw(node)) {
        const int axis = growing[0];
        shards_[{&graph, results[0]}] = axis < 0 ? Shard::Whole() : Shard::Split(axis, graph.value(results[0]).shape[axis] / batch_);
        return;
      }
      // Statistics of the batch, which have no sample axis, keep samples where they are.
      if (IsOneOf(node, {"BatchNormalization"}) && inputs[0].split() && inputs[0].axis == 0 && growing[0] == 0) {
        shards_[{&graph, results[0]}] = inputs[0];
        for (size_t i = 1; i < results.size(); ++i) shards_[{&graph, results[i]}] = Shard::Whole();
        return;
      }
      ShardQuery query(graph, node, batch_, std::move(inputs), growing);
      if (!combined_) InferShards(query);
      combined_ = combined_ || !query.reduced().empty();
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i] == kNoValue) continue;
        const Shard& made = query.outputs()[i];
        combined_ = combined_ || (made.split() ? made.axis != growing[i] : !made.whole() || growing[i] >= 0);
        shards_[{&graph, results[i]}] = made;
      }
    } catch (const Error&) {
      combined_ = true;
    }
  }
  if (combined_ && (tiled_ || found_.HasUnconfirmedChoice())) throw *found_.ambiguous;
}

}  // namespace gradloom

// Convolutions with filters per sample (StyleGAN, CondConv): the batch size is their number of groups.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_axis.h"

namespace gradloom {

// Handles samples that are groups of channels, each with its own filters.
void BatchObserver::ProveGroups(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const {
  const int64_t groups = node.attributes.Int("group", 1);
  const auto grown = [&](size_t i) { return BatchAxes(emitter.graph().value(node.inputs[i]).shape, was.inputs[i]); };
  // An exporter removes reshapes that have no effect for a single sample; without them, the result would have two batch axes.
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
  // A bias that is the same for all samples, such as the zeros that PyTorch's default exporter adds.
  const bool shared_bias = biased && grown(2).empty();
  const bool samples_in_channels = found_.declared == 1 && node.op == "Conv" && grown(0) == std::vector<int>{0} &&
                                   grown(1) == std::vector<int>{0} && (!biased || shared_bias || grown(2) == std::vector<int>{0});
  if (samples_in_channels) return changes.push_back({.operand = -1, .groups = groups, .samples_in_channels = true, .entries = {}});
  if (groups % found_.declared != 0 || grown(1) != std::vector<int>{0}) return;
  const Shape& image = emitter.graph().value(node.inputs[0]).shape;
  if (found_.declared > 1 && grown(0).empty() && image.rank() > 1 && image[1] % found_.declared == 0) {
    // A learned image that the file repeats for each sample (StyleGAN2).
    const int64_t period = PeriodAlong(emitter, node.inputs[0], 1);
    if (period > 0) changes.push_back({.operand = 0, .axis = 1, .period = period, .entries = {}});
  }
  if (changes.empty() && grown(0) != std::vector<int>{1}) return;
  if (shared_bias) {
    const int64_t extent = was.inputs[2][0];
    const int64_t period = extent % found_.declared == 0 ? PeriodAlong(emitter, node.inputs[2], 0) : 0;
    if (period > 0) changes.push_back({.operand = 2, .axis = 0, .period = found_.declared == 1 ? extent : period, .entries = {}});
  }
  changes.push_back({.operand = -1, .groups = groups / found_.declared, .entries = {}});
}

// Emits the convolution, and turns the node into the Reshape after it.
void BatchObserver::MoveSamplesToChannels(Emitter& emitter, Node& node) {
  inside_ = true;
  const std::string name = node.origin + "/batch";
  const auto reshaped = [&](ValueId id, const std::vector<int64_t>& to) {
    const ValueId target = emitter.AddConstant(name, Tensor::From<int64_t>(to, Shape{static_cast<int64_t>(to.size())}));
    Node reshape{.op = "Reshape", .domain = "", .inputs = {id, target}};
    reshape.origin = node.origin;
    return reshape;
  };
  const auto merged = [&](ValueId id, int64_t samples, int64_t channels) {
    std::vector<int64_t> to = emitter.graph().value(id).shape.dims();
    to[0] = samples;
    to[1] = channels;
    return reshaped(id, to);
  };
  const int64_t channels = emitter.graph().value(node.inputs[0]).shape[1];
  Node convolution = node;
  convolution.outputs.clear();
  convolution.inputs[0] = emitter.Emit(merged(node.inputs[0], 1, batch_ * channels), {name})[0];
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    const int64_t biases = emitter.graph().value(node.inputs[2]).shape[0];
    if (biases * batch_ == emitter.graph().value(node.inputs[1]).shape[0]) {  // the same for all samples
      const ValueId times = emitter.AddConstant(name, Tensor::From<int64_t>({batch_}, Shape{1}));
      Node tile{.op = "Tile", .domain = "", .inputs = {node.inputs[2], times}};
      tile.origin = node.origin;
      convolution.inputs[2] = emitter.Emit(std::move(tile), {name})[0];
    }
  }
  const ValueId made = emitter.Emit(std::move(convolution), {name})[0];
  const int64_t filters = emitter.graph().value(made).shape[1] / batch_;
  shards_[{&emitter.graph(), made}] = Shard::Split(1, filters);
  Node behind = merged(made, batch_, filters);
  behind.outputs = node.outputs;
  node = std::move(behind);
  inside_ = false;
}

}  // namespace gradloom

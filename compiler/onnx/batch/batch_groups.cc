// Convolutions with filters per sample (StyleGAN, CondConv): the batch size is their number of groups.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_prover.h"

namespace gradloom {

// Handles samples that are groups of channels, each with its own filters.
void BatchProver::ProveGroups(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) const {
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

}  // namespace gradloom

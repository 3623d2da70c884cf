// Operands with a fixed batch size in a file for one batch size: constants that are the same for each sample.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compiler/graph/constants.h"
#include "compiler/onnx/batch/batch_prover.h"
#include "compiler/ops/op.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxTrials = 256;

// Returns the axis of the viewed operand with the same extent and stride as `axis` of the view; -1 if there are several, of extent 1.
std::optional<int> AxisOfView(const Shape& from, const Shape& to, int axis) {
  const auto behind = to.strides()[static_cast<size_t>(axis)];
  int found = -1;
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] != to[axis] || from.strides()[static_cast<size_t>(i)] != behind) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

}  // namespace

std::optional<int> SourceAxis(const Graph& graph, const Node& node, size_t i, int out_rank, int axis) {
  const int rank = graph.value(node.inputs[i]).shape.rank();
  if (axis < 0) return -1;
  const Op* op = FindOp(node.domain, node.op);
  if (IsOneOf(node, {"Expand"}) || (op != nullptr && op->has(kPointwise))) {
    if (node.op == "Expand" && i > 0) return std::nullopt;
    const int aligned = axis - (out_rank - rank);
    return aligned < 0 ? std::nullopt : std::optional(aligned);
  }
  if (KeepsElements(node))
    return i == 0 ? AxisOfView(graph.value(node.inputs[0]).shape, graph.value(node.outputs[0]).shape, axis) : std::nullopt;
  // Samples come from x, channels from the filters and the bias.
  if (IsOneOf(node, {"Conv"})) {
    if (axis == 1) return i == 0 ? std::nullopt : std::optional(0);
    return i == 0 ? std::optional(axis) : std::nullopt;
  }
  if (IsOneOf(node, {"Concat"})) return axis;
  if (IsOneOf(node, {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"})) return i == 0 ? std::optional(axis) : -1;
  if (IsOneOf(node, {"Split", "Slice"})) return i == 0 ? std::optional(axis) : std::nullopt;
  // Rows of a product come from its first operand, columns from its second.
  if (IsOneOf(node, {"Gemm"})) {
    if (i == 2) return axis < 2 - rank ? std::nullopt : std::optional(axis - (2 - rank));
    if (i != static_cast<size_t>(axis)) return std::nullopt;
    return axis ^ static_cast<int>(node.attributes.Int(i == 0 ? "transA" : "transB", 0));
  }
  if (IsOneOf(node, {"MatMul"}) && out_rank >= 2 && rank >= 2) {
    const int behind = out_rank - axis;  // 2: rows, 1: columns
    if (behind <= 2 && (behind == 2) != (i == 0)) return std::nullopt;
    return axis < out_rank - rank ? std::nullopt : std::optional(axis - (out_rank - rank));
  }
  if (IsOneOf(node, {"Transpose"})) {
    const std::vector<int64_t> perm = node.attributes.Ints("perm");
    return perm.empty() ? out_rank - 1 - axis : static_cast<int>(perm[static_cast<size_t>(axis)]);
  }
  if (IsOneOf(node, {"Gather"})) {
    const int data_rank = graph.value(node.inputs[0]).shape.rank(), index_rank = graph.value(node.inputs[1]).shape.rank();
    const int given = static_cast<int>(node.attributes.Int("axis", 0)), gathered = given < 0 ? given + data_rank : given;
    const bool of_index = axis >= gathered && axis < gathered + index_rank;
    if (of_index) return i == 1 ? std::optional(axis - gathered) : std::nullopt;
    return i == 0 ? std::optional(axis < gathered ? axis : axis - index_rank + 1) : std::nullopt;
  }
  return -1;
}

namespace {

// Whether an unknown value is an Expand along the axis, or a Tile of extent 1, so that all positions are equal.
bool ExpandsAlong(const Emitter& emitter, ValueId id, int axis) {
  const Node* node = emitter.Producer(id);
  if (node == nullptr || !IsOneOf(*node, {"Expand", "Tile"})) return false;
  const Shape& from = emitter.graph().value(node->inputs[0]).shape;
  const int aligned = axis - (emitter.graph().value(id).shape.rank() - from.rank());
  return aligned < 0 || from[aligned] == 1;
}

// Whether the data is the same with the two axes exchanged.
bool IsSymmetric(const Tensor& data, int first, int second) {
  const Shape& shape = data.shape();
  if (shape[first] != shape[second]) return false;
  const int64_t along = shape.strides()[static_cast<size_t>(first)], across = shape.strides()[static_cast<size_t>(second)];
  const int64_t bytes = DTypeBytes(data.dtype());
  const auto* at = static_cast<const std::byte*>(data.data());
  for (int64_t k = 0; k < data.elements(); ++k) {
    const int64_t i = k / along % shape[first], j = k / across % shape[second];
    if (std::memcmp(at + k * bytes, at + (k + (j - i) * (along - across)) * bytes, static_cast<size_t>(bytes)) != 0) return false;
  }
  return true;
}

}  // namespace

bool RepeatsAlong(const Tensor& data, int axis, int64_t period) {
  const Shape& shape = data.shape();
  const int64_t bytes = shape.strides()[static_cast<size_t>(axis)] * DTypeBytes(data.dtype()), block = bytes * shape[axis];
  const auto* at = static_cast<const std::byte*>(data.data());
  bool repeats = period > 0 && shape[axis] % period == 0;
  for (int64_t start = 0; repeats && start < data.bytes(); start += block) {
    repeats = std::memcmp(at + start, at + start + period * bytes, static_cast<size_t>(block - period * bytes)) == 0;
  }
  return repeats;
}

Tensor RepeatedAlong(const Tensor& data, int axis, int64_t extent) {
  Shape shape = data.shape();
  const int64_t bytes = shape.strides()[static_cast<size_t>(axis)] * DTypeBytes(data.dtype()), was = shape[axis];
  shape[axis] = extent;
  Tensor made(data.dtype(), shape);
  for (int64_t at = 0; at * bytes < made.bytes(); ++at) {
    const int64_t from = at / extent * was + at % extent % was;
    std::memcpy(static_cast<std::byte*>(made.data()) + at * bytes, static_cast<const std::byte*>(data.data()) + from * bytes,
                static_cast<size_t>(bytes));
  }
  return made;
}

namespace {

// Where an element of a table is along an axis over samples: the sample, and the position among those of the sample or of the batches.
struct PairPlace {
  int64_t sample = 0, place = 0;
};
PairPlace PlaceAlong(int64_t index, int64_t extent, int64_t batch, bool batches_first) {
  const int64_t places = extent / batch;
  return batches_first ? PairPlace{index % batch, index / batch} : PairPlace{index / places, index % places};
}

// What an element depends on in such a table: its index along the other axes, the positions along both, and the order of the samples.
using PairKey = std::array<int64_t, 4>;
PairKey KeyOf(int64_t element, const Shape& shape, const std::vector<int64_t>& strides, const std::vector<int>& axes, int64_t batch,
              bool batches_first) {
  PairPlace at[2];
  int64_t others = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t index = element / strides[static_cast<size_t>(axis)] % shape[axis];
    const auto found = std::find(axes.begin(), axes.end(), axis);
    if (found == axes.end()) {
      others = others * shape[axis] + index;
    } else {
      at[found - axes.begin()] = PlaceAlong(index, shape[axis], batch, batches_first);
    }
  }
  const int64_t order = (at[0].sample > at[1].sample) - (at[0].sample < at[1].sample);
  return {others, at[0].place, at[1].place, order};
}

std::optional<Tensor> GrownInOrder(const Tensor& data, const std::vector<int>& axes, int64_t declared, int64_t batch, bool batches_first) {
  const int64_t bytes = DTypeBytes(data.dtype());
  const auto* from = static_cast<const std::byte*>(data.data());
  std::map<PairKey, int64_t> known;
  const std::vector<int64_t> strides = data.shape().strides();
  for (int64_t i = 0; i < data.elements(); ++i) {
    const int64_t same = known.emplace(KeyOf(i, data.shape(), strides, axes, declared, batches_first), i).first->second;
    if (std::memcmp(from + i * bytes, from + same * bytes, static_cast<size_t>(bytes)) != 0) return std::nullopt;
  }
  Shape shape = data.shape();
  for (const int axis : axes) shape[axis] = shape[axis] / declared * batch;
  const std::vector<int64_t> grown = shape.strides();
  Tensor made(data.dtype(), shape);
  for (int64_t i = 0; i < made.elements(); ++i) {
    const int64_t same = known.at(KeyOf(i, shape, grown, axes, batch, batches_first));
    std::memcpy(static_cast<std::byte*>(made.data()) + i * bytes, from + same * bytes, static_cast<size_t>(bytes));
  }
  return made;
}

}  // namespace

std::optional<Tensor> GrownTable(const Tensor& data, const std::vector<int>& axes, int64_t declared, int64_t batch) {
  if (axes.size() != 2 || declared < 3 || data.dtype() == DType::kString) return std::nullopt;
  std::optional<Tensor> batches = GrownInOrder(data, axes, declared, batch, true);
  std::optional<Tensor> places = GrownInOrder(data, axes, declared, batch, false);
  // Either order is possible, so both must agree.
  const bool differ = batches && places && std::memcmp(batches->data(), places->data(), static_cast<size_t>(batches->bytes())) != 0;
  return differ ? std::nullopt : batches ? std::move(batches) : std::move(places);
}

// Compares bitwise. Returns 1 if all positions along the axis are equal, the extent of a sample if all samples are equal, and 0 if they
// differ or are unknown. What is computed from weights may have equal elements only at the start, as copies of a scale of ones have.
int64_t BatchProver::PeriodAlong(Emitter& emitter, ValueId id, int axis) const {
  const Tensor* data = emitter.Constant(emitter.Computed(id));
  if (data == nullptr) return ExpandsAlong(emitter, id, axis) ? 1 : 0;
  if (data->dtype() == DType::kString) return 0;
  if (data->bytes() == 0) return 1;
  const int64_t sample = data->shape()[axis] / found_.declared;
  if (IsFloating(data->dtype()) && emitter.Producer(id) != nullptr && RepeatsAlong(*data, axis, sample)) return sample;
  return RepeatsAlong(*data, axis, 1) ? 1 : RepeatsAlong(*data, axis, sample) ? sample : 0;
}

// Returns the differences between consecutive samples of a constant that counts samples along the axis. With two samples any two numbers
// have a difference, so it must count from 0.
std::vector<int64_t> BatchProver::CountedSteps(Emitter& emitter, ValueId id, int axis) const {
  const Tensor* data = emitter.Constant(emitter.Computed(id));
  if (data == nullptr) return {};
  std::vector<int64_t> steps = StepsAlong(*data, axis, found_.declared);
  if (steps.empty() || (found_.declared > 2 && IsInteger(data->dtype()))) return steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] != 0 && ElementAsDouble(data->view(), static_cast<int64_t>(i)) != 0) return {};
  }
  return steps;
}

// The ways in which an operand with a fixed batch size can follow the batch: along an axis whose extent is the batch size, or a multiple of
// it, and along which samples are equal or are counted.
std::vector<BatchProver::Follows> BatchProver::WaysToFollow(Emitter& emitter, ValueId id, bool may_tile) const {
  std::vector<Follows> ways;
  const Shape shape = emitter.graph().value(id).shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] < found_.declared || shape[axis] % found_.declared != 0) continue;
    if (found_.declared == 1 && shape[axis] > 1 && !may_tile) continue;
    int64_t period = PeriodAlong(emitter, id, axis);
    // All positions of the only sample are repeated, even if they are equal: every sample has as many.
    if (found_.declared == 1 && period > 0) period = shape[axis];
    std::vector<int64_t> steps = period > 0 ? std::vector<int64_t>() : CountedSteps(emitter, id, axis);
    if (period > 0 || !steps.empty()) {
      ways.push_back({axis, period, std::move(steps)});
    } else if (auto draws = DrawsBehind(emitter, id, axis); !draws.empty()) {
      ways.push_back({.axis = axis, .period = 1, .draws = std::move(draws)});
    }
  }
  return ways;
}

// The same for a constant in which samples differ: along one axis or, for a table of pairs of samples, two. A symmetric one is such a table
// in any case.
std::vector<BatchProver::Follows> BatchProver::TablesOf(Emitter& emitter, ValueId id) const {
  std::vector<Follows> ways;
  const Tensor* data = emitter.Constant(emitter.Computed(id));
  if (data == nullptr || data->dtype() == DType::kString || data->elements() == 0) return ways;
  std::vector<int> axes;
  for (int axis = 0; axis < data->shape().rank(); ++axis) {
    if (data->shape()[axis] % found_.declared == 0) axes.push_back(axis);
  }
  std::set<int> of_pairs;
  for (size_t i = 0; i < axes.size(); ++i) {
    for (size_t j = i + 1; j < axes.size(); ++j) {
      ways.push_back({.table_axes = {axes[i], axes[j]}});
      if (IsSymmetric(*data, axes[i], axes[j])) of_pairs.insert({axes[i], axes[j]});
    }
  }
  for (const int axis : axes) {
    if (!of_pairs.contains(axis)) ways.push_back({.table_axes = {axis}});
  }
  return ways;
}

// The combinations of ways, by operand, for which the node is valid: those that change the fewest operands first.
std::vector<std::vector<BatchChange>> BatchProver::Fitting(Emitter& emitter, const Node& node,
                                                           const std::vector<std::vector<Follows>>& ways) {
  int64_t trials = 1;
  for (const auto& of_operand : ways) trials = std::min(trials * (static_cast<int64_t>(of_operand.size()) + 1), kMaxTrials);
  std::vector<std::vector<BatchChange>> fits;
  for (int64_t trial = 1; trial < trials; ++trial) {
    std::vector<BatchChange> candidate;
    Node changed = node;
    int64_t rest = trial;
    for (size_t k = 0; k < ways.size(); ++k) {
      const auto choices = static_cast<int64_t>(ways[k].size()) + 1;
      const int64_t choice = rest % choices;
      rest /= choices;
      if (choice == 0) continue;
      const Follows& way = ways[k][static_cast<size_t>(choice - 1)];
      candidate.push_back({.operand = static_cast<int>(k),
                           .axis = way.axis,
                           .period = way.period,
                           .entries = {},
                           .steps = way.steps,
                           .draws = way.draws,
                           .table_axes = way.table_axes});
    }
    try {
      for (const BatchChange& change : candidate) Apply(emitter, changed, change);
      emitter.CheckTypes(changed);
    } catch (const Error&) {
      continue;
    }
    fits.push_back(std::move(candidate));
  }
  std::stable_sort(fits.begin(), fits.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return fits;
}

// Finds which operands with a fixed batch size must follow the batch so that the node is valid again: the fewest, if there is one way to do
// so. Constants in which samples differ are changed if nothing else makes the node valid.
void BatchProver::ProveOperands(Emitter& emitter, const Node& node, const Emitted& was, const Error& error,
                                std::vector<BatchChange>& changes) {
  std::vector<std::vector<Follows>> ways(node.inputs.size());
  const auto fixed = [&](size_t k) { return node.inputs[k] != kNoValue && emitter.graph().value(node.inputs[k]).shape == was.inputs[k]; };
  const bool may_tile = MayTile(emitter.graph(), node, was);
  for (size_t k = 0; k < ways.size(); ++k) {
    if (fixed(k)) ways[k] = WaysToFollow(emitter, node.inputs[k], may_tile);
    // Indices of a write that are equal for all samples would let all of them write to the same place.
    if (node.op == "ScatterND" && k == 1) std::erase_if(ways[k], [](const Follows& way) { return way.period > 0 && way.draws.empty(); });
  }
  std::vector<std::vector<BatchChange>> fits = Fitting(emitter, node, ways);
  if (fits.empty() && found_.declared > 1) {
    for (size_t k = 0; k < ways.size(); ++k) {
      if (!fixed(k)) continue;
      const std::vector<Follows> tables = TablesOf(emitter, node.inputs[k]);
      ways[k].insert(ways[k].end(), tables.begin(), tables.end());
    }
    fits = Fitting(emitter, node, ways);
  }
  if (fits.empty()) Refuse(node, error.message());
  if (fits.size() > 1 && fits[0].size() == fits[1].size()) Refuse(node, error.message() + "; it is ambiguous which axis is the batch");
  changes = std::move(fits[0]);
  for (BatchChange& change : changes) {
    if (!change.table_axes.empty()) change.refusal = Refusal(node, error.message());
    // Their nodes were changed, and the value still has no number for each sample.
    if (!change.draws.empty() && !NoteDraws(change.draws)) Refuse(node, error.message());
  }
  if (found_.declared == 1 && std::any_of(changes.begin(), changes.end(), [](const BatchChange& change) { return change.period > 1; })) {
    tiled_ = true;
    if (!found_.ambiguous) found_.ambiguous = Refusal(node, error.message());
  }
}

}  // namespace gradloom

// Elements that are read or written by the index of their sample in a file for one batch size: `h[torch.arange(batch), last]`.
#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/graph/constants.h"
#include "compiler/onnx/batch/batch_prover.h"

namespace gradloom {
namespace {

constexpr char kByNumber[] = "it selects samples of the batch by index";
constexpr char kWritten[] = "the values that it writes differ between samples";

bool IsZeros(const Tensor* data) {
  if (data == nullptr || !IsInteger(data->dtype()) || data->elements() == 0) return false;
  const std::vector<int64_t> values = IntValues(data->view());
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 0; });
}

// Whether the data are whole numbers from 0 to less than `places`.
bool AreWithin(const Tensor* data, int64_t places) {
  if (data == nullptr || !IsInteger(data->dtype()) || data->elements() == 0) return false;
  const std::vector<int64_t> values = IntValues(data->view());
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= 0 && value < places; });
}

// Returns known number `i`, or `otherwise` if there is no such element or operand; nullopt if the numbers are unknown.
std::optional<int64_t> KnownNumber(Emitter& emitter, ValueId id, size_t i, std::optional<int64_t> otherwise) {
  if (id == kNoValue) return otherwise;
  const Tensor* data = emitter.Constant(emitter.Computed(id));
  if (data == nullptr || !IsInteger(data->dtype())) return std::nullopt;
  const std::vector<int64_t> values = IntValues(data->view());
  return i < values.size() ? std::optional(values[i]) : otherwise;
}

// Returns the column of the data, along the last axis, that column `at` of a Slice or a Gather comes from (-1: its only one). Boxes, for
// example, have the index of their image in front.
std::optional<int> SourceColumn(Emitter& emitter, const Node& node, int at) {
  const Shape& data = emitter.graph().value(node.inputs[0]).shape;
  const int last = data.rank() - 1;
  if (last < 0) return std::nullopt;
  const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; };
  std::optional<int64_t> start;
  if (IsOneOf(node, {"Gather"})) {
    if (at >= 0 || NormalAxis(node.attributes.Int("axis", 0), data.rank()) != last) return std::nullopt;
    if (emitter.graph().value(node.inputs[1]).shape.elements() == 1) start = KnownNumber(emitter, node.inputs[1], 0, std::nullopt);
  } else {
    const int64_t sliced = emitter.graph().value(node.inputs[1]).shape.elements();
    int64_t position = 0;
    while (position < sliced) {
      const auto axis = KnownNumber(emitter, input(3), static_cast<size_t>(position), position);
      if (!axis) return std::nullopt;
      if (NormalAxis(*axis, data.rank()) == last) break;
      ++position;
    }
    if (position == sliced) return at;
    if (KnownNumber(emitter, input(4), static_cast<size_t>(position), 1) != 1) return std::nullopt;
    start = KnownNumber(emitter, node.inputs[1], static_cast<size_t>(position), std::nullopt);
  }
  if (!start) return std::nullopt;
  const int64_t column = (*start < 0 ? *start + data[last] : *start) + std::max(at, 0);
  return column >= 0 && column < data[last] ? std::optional(static_cast<int>(column)) : std::nullopt;
}

}  // namespace

// A Gather, GatherND, GatherElements, ScatterND or ScatterElements, and the axes of its data that indices select along.
struct BatchProver::Choice {
  const Node& node;
  const Shape data, indices, was_data, was_indices;
  const bool tuples, writes;
  std::vector<int> axes;

  Choice(const Graph& graph, const Node& n, const Emitted& was)
      : node(n),
        data(graph.value(n.inputs[0]).shape),
        indices(graph.value(n.inputs[1]).shape),
        was_data(was.inputs[0]),
        was_indices(was.inputs[1]),
        tuples(n.op == "GatherND" || n.op == "ScatterND"),
        writes(n.op == "ScatterND" || n.op == "ScatterElements") {
    if (data.rank() != was_data.rank() || indices.rank() != was_indices.rank()) return;
    if (tuples) {
      const int64_t depth = indices.rank() == 0 ? 0 : indices[indices.rank() - 1];
      for (int i = 0; i < std::min<int64_t>(depth, data.rank()) && n.attributes.Int("batch_dims", 0) == 0; ++i) axes.push_back(i);
    } else if (const auto axis = NormalAxis(n.attributes.Int("axis", 0), data.rank())) {
      axes.push_back(*axis);
    }
  }
  bool grown(int axis) const { return data[axis] != was_data[axis]; }
  // Whether indices of consecutive samples differ by the positions of a sample; for tuples, in the component of `axis` only.
  bool Fits(const std::vector<int64_t>& steps, int axis, int64_t places) const {
    if (!tuples) return steps == std::vector<int64_t>{places};
    for (size_t k = 0; k < axes.size(); ++k) {
      const int64_t step = steps.empty() ? 0 : steps[steps.size() == 1 ? 0 : k];
      if (step != (static_cast<int>(k) == axis ? places : 0)) return false;
    }
    return true;
  }
};

// Returns the steps of indices into the axis of the only sample, if these indices are zeros.
std::vector<int64_t> BatchProver::OnlySample(const Choice& choice, const Tensor& indices, int axis) {
  const std::vector<int64_t> numbers = IntValues(indices.view());
  const size_t width = choice.tuples ? choice.axes.size() : 1, column = choice.tuples ? static_cast<size_t>(axis) : 0;
  for (size_t i = column; i < numbers.size(); i += width) {
    if (numbers[i] != 0) return {};
  }
  std::vector<int64_t> steps(width, 0);
  steps[column] = 1;
  return steps;
}

// Handles constant indices.
void BatchProver::ProveKnownChoice(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes) {
  const Tensor indices = *emitter.Constant(emitter.Computed(choice.node.inputs[1]));
  const Shape updates = choice.writes ? emitter.graph().value(choice.node.inputs[2]).shape : Shape();
  const std::vector<int> updated = choice.writes ? BatchAxes(updates, was.inputs[2]) : std::vector<int>();
  int fits = 0;
  bool grown = false;
  for (const int axis : choice.axes) {
    grown = grown || choice.grown(axis);
    const bool may_repeat = !choice.grown(axis) && !updated.empty() && choice.was_data[axis] % found_.declared == 0;
    const int64_t repeated = may_repeat ? PeriodAlong(emitter, choice.node.inputs[0], axis) : 0;
    if (!choice.grown(axis) && repeated == 0) continue;
    const int64_t places = choice.was_data[axis] / found_.declared;
    if (BatchesAlong(choice.node.inputs[0]) > 1) continue;
    for (int along = 0; along < choice.indices.rank() - (choice.tuples ? 1 : 0); ++along) {
      if (choice.indices[along] % found_.declared != 0 || (!choice.tuples && choice.writes && along != axis)) continue;
      std::vector<int64_t> steps = StepsAlong(indices, along, found_.declared);
      const bool written = std::find(updated.begin(), updated.end(), along) != updated.end();
      if (found_.declared == 1 && choice.was_data[axis] == 1 && along == (choice.node.op.ends_with("Elements") ? axis : 0)) {
        // There is no other sample to select.
        steps = OnlySample(choice, indices, axis);
      }
      if (steps.empty() || !choice.Fits(steps, axis, places)) continue;
      ++fits;
      changes = {{.operand = 1, .axis = along, .entries = {}, .steps = std::move(steps)}};
      next_outer_ = 1;
      if (repeated > 0) changes.push_back({.operand = 0, .axis = axis, .period = repeated, .entries = {}});
      if (!choice.writes || written) continue;
      const int64_t period = along < updates.rank() ? PeriodAlong(emitter, choice.node.inputs[2], along) : 0;
      if (period == 0) Refuse(choice.node, kWritten);
      changes.push_back({.operand = 2, .axis = along, .period = period, .entries = {}});
    }
  }
  if (fits == 1) return;
  changes.clear();
  if (grown) Refuse(choice.node, kByNumber);
}

// Handles one index per element. Along the other axes the indices have the extents of the data, or smaller ones, which would silently omit
// samples at the end of a larger batch: no shape would be wrong.
void BatchProver::ProveElements(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes) {
  for (int axis = 0; axis < choice.data.rank(); ++axis) {
    if (axis == choice.axes[0] || !choice.grown(axis)) continue;
    if (choice.was_indices[axis] != choice.was_data[axis]) Refuse(choice.node, kByNumber);
    for (const int operand : choice.writes ? std::vector<int>{1, 2} : std::vector<int>{1}) {
      const ValueId id = choice.node.inputs[static_cast<size_t>(operand)];
      if (emitter.graph().value(id).shape != was.inputs[static_cast<size_t>(operand)]) continue;
      const int64_t period = PeriodAlong(emitter, id, axis);
      if (period == 0) Refuse(choice.node, operand == 1 ? "its indices differ between samples" : kWritten);
      changes.push_back({.operand = operand, .axis = axis, .period = period, .entries = {}});
    }
  }
}

// The updates have an entry for each index tuple.
void BatchProver::ProveWritten(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes) {
  if (choice.node.op != "ScatterND") return;
  const Shape updates = emitter.graph().value(choice.node.inputs[2]).shape;
  if (updates != was.inputs[2]) return;
  for (const int axis : BatchAxes(choice.indices, choice.was_indices)) {
    if (axis == choice.indices.rank() - 1 || axis >= updates.rank() || updates[axis] != choice.was_indices[axis]) continue;
    const int64_t period = PeriodAlong(emitter, choice.node.inputs[2], axis);
    if (period > 0) changes.push_back({.operand = 2, .axis = axis, .period = period, .entries = {}});
  }
}

// Returns how many whole batches follow each other along the batch axis of a value.
int64_t BatchProver::BatchesAlong(ValueId id) const {
  const auto found = outer_.find(id);
  return found == outer_.end() ? 1 : found->second;
}

// Handles regions, which contain the index of their image.
void BatchProver::ProveRegions(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  const Graph& graph = emitter.graph();
  const int named = node.op == "RoiAlign" ? 2 : 1;
  const ValueId numbers = node.inputs[static_cast<size_t>(named)];
  if (graph.value(node.inputs[0]).shape == was.inputs[0]) return;
  if (graph.value(numbers).shape != was.inputs[static_cast<size_t>(named)]) {
    if (found_.declared == 1) CountOnlySample(emitter, numbers, named == 2 ? -1 : 0, 1);
    return;
  }
  const Tensor* data = emitter.Constant(emitter.Computed(numbers));
  if (data == nullptr) return;
  const std::vector<int64_t> wanted = named == 2 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 0, 0, 0, 0};
  // With a single image, all regions belong to it.
  const std::vector<int64_t> steps = found_.declared == 1 ? wanted : StepsAlong(*data, 0, found_.declared);
  if (steps != wanted) Refuse(node, kByNumber);
  changes.push_back({.operand = named, .axis = 0, .entries = {}, .steps = steps});
  if (named == 1 || graph.value(node.inputs[1]).shape != was.inputs[1]) return;
  const int64_t period = PeriodAlong(emitter, node.inputs[1], 0);
  if (period == 0) Refuse(node, "its regions differ between images");
  changes.push_back({.operand = 1, .axis = 0, .period = period, .entries = {}});
}

// Handles the inverse of an order of the samples, with which packed sequences are put back: `zeros(batch).scatter(0, order,
// arange(batch))`. The zeros and the numbers must follow the order, although no shape is wrong if they do not.
void BatchProver::ProveInverse(Emitter& emitter, const Choice& choice, const Emitted& was, std::vector<BatchChange>& changes) {
  const Node& node = choice.node;
  if (node.op != "ScatterElements" || choice.data != choice.was_data || emitter.graph().value(node.inputs[2]).shape != was.inputs[2])
    return;
  const int axis = choice.axes[0];
  if (BatchAxes(choice.indices, choice.was_indices) != std::vector<int>{axis} || choice.was_data[axis] != found_.declared ||
      choice.was_indices[axis] != found_.declared || choice.was_data.elements() != found_.declared)
    return;
  const Tensor *data = emitter.Constant(emitter.Computed(node.inputs[0])), *numbers = emitter.Constant(emitter.Computed(node.inputs[2]));
  if (data == nullptr || numbers == nullptr || !RepeatsAlong(*data, axis, 1)) Refuse(node, kWritten);
  // The only sample of a file has number 0.
  std::vector<int64_t> steps = found_.declared > 1 ? CountedSteps(emitter, node.inputs[2], axis)
                               : IsZeros(numbers)  ? std::vector<int64_t>{1}
                                                   : std::vector<int64_t>();
  if (steps.empty()) Refuse(node, kWritten);
  changes.push_back({.operand = 0, .axis = axis, .period = 1, .entries = {}});
  changes.push_back({.operand = 2, .axis = axis, .entries = {}, .steps = std::move(steps)});
}

void BatchProver::ProveChosen(Emitter& emitter, const Node& node, const Emitted& was, std::vector<BatchChange>& changes) {
  if (node.inputs.size() < 2 || was.inputs.size() != node.inputs.size()) return;
  const Choice choice(emitter.graph(), node, was);
  if (choice.axes.empty()) return;
  if (choice.indices == choice.was_indices && emitter.Computed(node.inputs[1]) != kNoValue) {
    ProveKnownChoice(emitter, choice, was, changes);
    if (changes.empty() && IsOneOf(node, {"GatherElements", "ScatterElements"})) ProveElements(emitter, choice, was, changes);
    return;
  }
  for (const int axis : choice.axes) {
    if (found_.declared > 1 || !choice.grown(axis)) continue;
    const int64_t places = BatchesAlong(node.inputs[0]) > 1 ? 0 : choice.was_data[axis];
    const bool found = CountOnlySample(emitter, node.inputs[1], choice.tuples ? axis : -1, places);
    if (found && places == 0) Refuse(node, kByNumber);
    if (!found && choice.was_data[axis] > 1 && PositionsOf(emitter.graph(), node.inputs[1]) == Positions::kWithinSample)
      NumberRows(emitter.graph(), choice, changes);
  }
  ProveWritten(emitter, choice, was, changes);
  ProveInverse(emitter, choice, was, changes);
  // Zeros that all samples write into.
  if (!choice.writes || choice.data != choice.was_data) return;
  const std::vector<int> grown = BatchAxes(emitter.graph().value(node.inputs[2]).shape, was.inputs[2]);
  if (grown.empty()) return;
  // With ScatterElements, updates and zeros correspond along all axes but one.
  for (const int axis : choice.tuples ? choice.axes : grown) {
    if (choice.data[axis] % found_.declared != 0) continue;
    const int64_t period = PeriodAlong(emitter, node.inputs[0], axis);
    if (period == 0) continue;
    changes.push_back({.operand = 0, .axis = axis, .period = period, .entries = {}});
    if (!choice.tuples || found_.declared > 1 || CountOnlySample(emitter, node.inputs[1], axis, choice.data[axis])) return;
    // The tuples of all samples would write to the positions of the first one.
    const Positions positions = PositionsOf(emitter.graph(), node.inputs[1]);
    const bool counted = positions == Positions::kWithinSample && CountOnlySample(emitter, node.inputs[1], axis, choice.data[axis], true);
    if (!counted && positions != Positions::kNumbered) Refuse(node, kByNumber);
    return;
  }
}

// In a file for a single sample, its index is a 0, which only differs from other zeros in that it selects along the batch axis. If a later
// node reveals it, it is noted for the next walk. `column`: of index tuples, or -1. With `any`, the constant may have other numbers, which
// are positions within the sample. Returns whether there is such a constant.
bool BatchProver::CountOnlySample(Emitter& emitter, ValueId indices, int column, int64_t places, bool any) {
  const Graph& graph = emitter.graph();
  bool found = false;
  const auto note = [&](size_t index, int operand, int axis) {
    found = true;
    if (places == 0) return;
    again_ |= found_.counted.insert({{index, operand}, {.operand = operand, .axis = axis, .entries = {}, .steps = {places}}}).second;
  };
  std::vector<std::pair<ValueId, int>> open{{indices, column}};
  std::set<ValueId> seen;
  while (!open.empty() && !(any && found)) {
    const auto [id, at] = open.back();
    open.pop_back();
    if (id == kNoValue || !seen.insert(id).second) continue;
    if (const auto repeated = repeated_.find({&graph, id}); repeated != repeated_.end()) {
      note(repeated->second.first, repeated->second.second.operand, repeated->second.second.axis);
      continue;
    }
    const auto made = made_of_.find({&graph, id});
    if (made == made_of_.end()) continue;
    const auto& [index, node] = made->second;
    const Shape& shape = graph.value(id).shape;
    if (IsOneOf(node, {"Concat"})) {
      const bool tuples = NormalAxis(node.attributes.Int("axis", 0), shape.rank()) == shape.rank() - 1;
      int before = 0;
      for (ValueId input : node.inputs) {
        const int width = tuples ? static_cast<int>(graph.value(input).shape[shape.rank() - 1]) : 0;
        if (!tuples || at < 0 || (at >= before && at < before + width)) open.emplace_back(input, tuples && at >= 0 ? at - before : at);
        before += width;
      }
    } else if (IsOneOf(node, {"Unsqueeze", "Squeeze", "Reshape", "Cast", "Identity", "Transpose", "Tile"})) {
      open.emplace_back(node.inputs[0], at);
    } else if (IsOneOf(node, {"Slice", "Gather"})) {
      if (const auto column = SourceColumn(emitter, node, at)) open.emplace_back(node.inputs[0], *column);
    } else if (IsOneOf(node, {"Add", "Expand"})) {
      const std::vector<int> grown = BatchAxes(shape, found_.reference[index].outputs[0]);
      // The sample counts once, whichever of several constants it is added to.
      for (int i = 0; i < (node.op == "Expand" ? 1 : 2) && !(any && found); ++i) {
        const ValueId one = node.inputs[static_cast<size_t>(i)];
        const Shape& number = graph.value(one).shape;
        const int shift = shape.rank() - number.rank();
        if ((any ? AreWithin(emitter.Constant(one), places) : IsZeros(emitter.Constant(one))) && grown.size() == 1 && grown[0] >= shift &&
            number[grown[0] - shift] == 1) {
          note(index, i, grown[0] - shift);
        } else {
          open.emplace_back(one, at);
        }
      }
    }
  }
  return found;
}

// Whether the value consists of the indices that a MaxPool returns, which count through all samples. PyTorch's exporter subtracts those of
// the first element of each channel to get positions within it.
bool BatchProver::IsPlaceOfPool(const Graph& graph, ValueId id) const {
  while (true) {
    const auto made = made_of_.find({&graph, id});
    if (made == made_of_.end()) return false;
    const Node& node = made->second.second;
    if (IsOneOf(node, {"MaxPool"})) return IsInteger(graph.value(id).dtype) && !IsInteger(graph.value(node.inputs[0]).dtype);
    if (!IsOneOf(node, {"Slice", "Cast", "Identity"})) return false;
    id = node.inputs[0];
  }
}

// Indices are positions within a sample if they are fed, or found along an axis that does not depend on the batch size, unless the index of
// the sample was added. Positions among all samples (from NonZero, or an ArgMax over all of them) are correct at any batch size.
BatchProver::Positions BatchProver::PositionsOf(const Graph& graph, ValueId indices) const {
  std::vector<ValueId> open{indices};
  std::set<ValueId> seen;
  bool within = false;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == kNoValue || !seen.insert(id).second) continue;
    const auto made = made_of_.find({&graph, id});
    if (made == made_of_.end()) {
      within = within || graph.value(id).role == Role::kInput;
      continue;
    }
    const auto& [index, node] = made->second;
    const auto counted = found_.counted.lower_bound({index, 0});
    if (counted != found_.counted.end() && counted->first.first == index) return Positions::kNumbered;
    if (IsOneOf(node, {"ArgMax", "ArgMin", "TopK"})) {
      const Shape& read = graph.value(node.inputs[0]).shape;
      const Shape& was = found_.reference[index].inputs[0];
      const auto axis = NormalAxis(node.attributes.Int("axis", node.op == "TopK" ? -1 : 0), read.rank());
      within = within || (axis && was.rank() == read.rank() && was[*axis] == read[*axis]);
    } else if (IsOneOf(node, {"Sub"}) && IsPlaceOfPool(graph, node.inputs[0]) && IsPlaceOfPool(graph, node.inputs[1])) {
      within = true;
    } else if (IsOneOf(node, {"Unsqueeze", "Squeeze", "Reshape", "Flatten", "Cast", "Identity", "Transpose", "Slice", "Gather", "Clip"})) {
      open.push_back(node.inputs[0]);
    } else if (IsOneOf(node, {"Add", "Sub", "Mul", "Mod", "Min", "Max", "Concat", "Expand", "Tile", "Where"})) {
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }
  return within ? Positions::kWithinSample : Positions::kAny;
}

// Rows of all samples, which follow each other, are selected by positions within a sample: in a file for a single sample, a tool has
// removed the sample index times the rows per sample, which is 0.
void BatchProver::NumberRows(const Graph& graph, const Choice& choice, std::vector<BatchChange>& changes) const {
  const std::vector<int> along = BatchAxes(choice.indices, choice.was_indices);
  if (choice.tuples || choice.writes || choice.node.op != "Gather" || along.size() != 1 || BatchesAlong(choice.node.inputs[0]) > 1 ||
      BatchesAlong(choice.node.inputs[1]) > 1 || !IsInteger(graph.value(choice.node.inputs[1]).dtype))
    Refuse(choice.node, kByNumber);
  changes.push_back({.operand = 1, .axis = along[0], .entries = {}, .steps = {choice.was_data[choice.axes[0]]}, .added = true});
}

// Applies what CountOnlySample has noted for the node.
void BatchProver::RecordCountedSample(std::vector<BatchChange>& changes) const {
  for (auto at = found_.counted.lower_bound({index_, 0}); at != found_.counted.end() && at->first.first == index_; ++at) {
    std::erase_if(changes, [&](const BatchChange& change) { return change.operand == at->first.second; });
    changes.push_back(at->second);
  }
}

int64_t BatchProver::CountedBy(const Graph& graph, ValueId id) const {
  const auto found = counted_.find({&graph, id});
  return found == counted_.end() ? 0 : found->second;
}

// Tracks multiples of sample indices: a constant that counts samples, or values computed from one by moving data and adding the position
// within a sample.
void BatchProver::FollowCounted(const Graph& graph, const Node& node, const std::vector<ValueId>& results) {
  int64_t step = 0;
  // Exporters write a Concat of a single operand for index tuples of one column.
  if (IsOneOf(node, {"Add", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Cast", "Identity"}) ||
      (IsOneOf(node, {"Concat"}) && node.inputs.size() == 1)) {
    const auto own = found_.changes.find(index_);
    for (size_t k = 0; k < (node.op == "Add" ? 2 : 1); ++k) step += CountedBy(graph, node.inputs[k]);
    if (node.op == "Add" && own != found_.changes.end()) {
      for (const BatchChange& change : own->second) step += change.steps.size() == 1 ? change.steps[0] : 0;
    }
  }
  if (step > 0 && IsInteger(graph.value(results[0]).dtype)) counted_[{&graph, results[0]}] = step;
}

}  // namespace gradloom

#include "compiler/onnx/batch/weight_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_values.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Whether the tensor repeats for each sample along some axis. A vector of equal elements must have one for each sample: otherwise every
// bias of zeros could be copies.
bool MayBeCopies(const Tensor& data, int64_t batch) {
  const Shape& shape = data.shape();
  if (!IsFloating(data.dtype()) || shape.rank() == 0 || data.bytes() == 0) return false;
  if (shape.rank() == 1 && shape[0] != batch && RepeatsAlong(data, 0, 1)) return false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] % batch == 0 && RepeatsAlong(data, axis, shape[axis] / batch)) return true;
  }
  return false;
}

Tensor FirstAlong(const Tensor& data, int axis, int64_t extent) {
  Shape shape = data.shape();
  const int64_t place = shape.strides()[static_cast<size_t>(axis)] * DTypeBytes(data.dtype());
  const int64_t from = place * shape[axis], to = place * extent;
  shape[axis] = extent;
  Tensor first(data.dtype(), shape);
  for (int64_t i = 0; i * to < first.bytes(); ++i) {
    std::memcpy(static_cast<std::byte*>(first.data()) + i * to, static_cast<const std::byte*>(data.data()) + i * from,
                static_cast<size_t>(to));
  }
  return first;
}

// Recognizes the Slice with which BatchObserver takes the copy that it repeats. Returns the axis and the extent of the copy.
std::optional<std::pair<int, int64_t>> CopyTaken(const Graph& graph, const Node& node) {
  if (node.op != "Slice" || !node.domain.empty() || node.inputs.size() != 4 || !node.origin.ends_with("/batch")) return std::nullopt;
  const Tensor *end = graph.data(node.inputs[2]), *axis = graph.data(node.inputs[3]);
  if (end == nullptr || axis == nullptr || end->elements() != 1 || axis->elements() != 1) return std::nullopt;
  return std::pair(static_cast<int>(axis->as<int64_t>()[0]), end->as<int64_t>()[0]);
}

// Adds the node before all others; returns its output.
ValueId AddFirst(Graph& graph, Node node) {
  const ValueId made = graph.AddNode(std::move(node)).outputs[0];
  std::rotate(graph.nodes.begin(), graph.nodes.end() - 1, graph.nodes.end());
  return made;
}

// Repeats the weight to all its copies.
ValueId CopiesOf(Graph& graph, ValueId weight, const Shape& shape) {
  const Value one = graph.value(weight);
  std::vector<int64_t> repeats;
  for (int axis = 0; axis < shape.rank(); ++axis) repeats.push_back(shape[axis] / one.shape[axis]);
  const std::string name = one.name + "/batch";
  const ValueId counts = graph.AddData(name, Tensor::From<int64_t>(repeats, Shape{shape.rank()}), Role::kConst);
  graph.value(counts).derived = true;
  Node tile{.op = "Tile", .domain = "", .inputs = {weight, counts}, .outputs = {graph.AddValue(name, one.dtype, shape, Role::kActivation)}};
  tile.origin = name;
  return AddFirst(graph, std::move(tile));
}

}  // namespace

bool MayHoldCopies(const ModelFile& file, int64_t batch) {
  return std::any_of(file.tensors.begin(), file.tensors.end(), [&](const auto& tensor) { return MayBeCopies(tensor.second.data, batch); });
}

Unshared ShareCopies(Graph& graph, const std::set<std::string>& copies, bool own_batch) {
  const Uses uses(graph);
  Unshared apart;
  std::map<ValueId, ValueId> whole;      // the weight that replaces the result of a Slice
  std::map<ValueId, Shape> read_shapes;  // the shape of all copies, for weights that are also read as such
  for (const std::string& name : copies) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue) {  // belongs to a body
      apart.here.insert(name);
      apart.anywhere.insert(name);
      continue;
    }
    std::set<std::pair<int, int64_t>> taken;
    std::vector<ValueId> slices;
    const bool fetched = std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    bool all = true;
    for (int reader : uses.consumers[static_cast<size_t>(id)]) {
      const Node& node = graph.nodes[static_cast<size_t>(reader)];
      const auto copy = CopyTaken(graph, node);
      all = all && copy.has_value();
      if (!copy) continue;
      taken.insert(*copy);
      slices.push_back(node.outputs[0]);
    }
    const bool anywhere = fetched || taken.size() != 1;
    if (anywhere) apart.anywhere.insert(name);
    if (anywhere || (!all && !own_batch)) {
      apart.here.insert(name);
      continue;
    }
    const auto [axis, extent] = *taken.begin();
    if (!all) read_shapes.emplace(id, graph.value(id).shape);
    Tensor one = FirstAlong(*graph.data(id), axis, extent);
    graph.value(id).shape = one.shape();
    graph.set_data(id, std::move(one));
    for (ValueId slice : slices) whole.emplace(slice, id);
  }
  std::erase_if(graph.nodes, [&](const Node& node) { return !node.outputs.empty() && whole.contains(node.outputs[0]); });
  std::map<ValueId, ValueId> all_copies;
  const size_t made_for_copies = read_shapes.size();
  for (const auto& [id, shape] : read_shapes) all_copies.emplace(id, CopiesOf(graph, id, shape));
  for (size_t i = made_for_copies; i < graph.nodes.size(); ++i) {
    for (ValueId& input : graph.nodes[i].inputs) {
      // A use other than by such a Slice needs all copies.
      if (const auto found = whole.find(input); found != whole.end()) {
        input = found->second;
      } else if (const auto copies_of = all_copies.find(input); copies_of != all_copies.end()) {
        input = copies_of->second;
      }
    }
  }
  return apart;
}

std::string WarningOfCopies(const std::set<std::string>& names, int64_t batch) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "'" : ", '") + Escaped(name) + "'";
  return list + (names.size() == 1 ? " holds a copy" : " hold copies") + " of one weight for each of the " + std::to_string(batch) +
         " samples of the batch size that the file was exported for, and the copies are trained separately: export with optimize=False "
         "or with a dynamic batch, or do not train them (--freeze)";
}

std::set<std::string> EvidentCopies(const ModelFile& file, int64_t batch) {
  std::set<std::string> names;
  for (const auto& [site, tensor] : file.tensors) {
    const Shape& shape = tensor.data.shape();
    if (!MayBeCopies(tensor.data, batch)) continue;
    const bool varies = !RepeatsAlong(tensor.data, shape.rank() - 1, 1);
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) {
      if (varies && shape[axis] == batch && RepeatsAlong(tensor.data, axis, 1)) names.insert(tensor.name);
    }
  }
  return names;
}

}  // namespace gradloom

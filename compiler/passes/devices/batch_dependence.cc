#include "compiler/passes/devices/batch_dependence.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "compiler/graph/constants.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

template <class Refused = Error>
[[noreturn]] void Refuse(const std::string& why, const std::string& where) {
  throw Refused(ErrorCode::kUnsupported, "the batch cannot be divided over devices: " + why, where,
                "train on one device (name one in --devices)");
}

// Whether the slices along the axis repeat with this period.
bool Repeats(const Tensor& tensor, int axis, int64_t period) {
  const Shape& shape = tensor.shape();
  const int64_t bytes = shape.strides()[static_cast<size_t>(axis)] * DTypeBytes(tensor.dtype()), block = bytes * shape[axis];
  const auto* at = static_cast<const std::byte*>(tensor.data());
  for (int64_t start = 0; start < tensor.bytes(); start += block) {
    if (std::memcmp(at + start, at + start + period * bytes, static_cast<size_t>(block - period * bytes)) != 0) return false;
  }
  return true;
}

}  // namespace

BatchDependence::BatchDependence(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch)
    : graph_(graph), other_(other), batch_(batch), other_batch_(other_batch), other_of_(static_cast<size_t>(graph.num_values()), kNoValue) {
  const auto unlike = [&](const Node& node) {
    Refuse<GraphMismatch>(
        "at batch size " + std::to_string(other_batch) + " the model has different operators than at " + std::to_string(batch),
        Describe(node));
  };
  static const Node kEnd{.op = "the end"};
  for (size_t i = 0; i < std::max(graph.nodes.size(), other.nodes.size()); ++i) {
    if (i >= graph.nodes.size() || i >= other.nodes.size()) unlike(i < graph.nodes.size() ? graph.nodes[i] : other.nodes[i]);
    const Node &a = graph.nodes[i], &b = other.nodes[i];
    if (a.op != b.op || a.domain != b.domain || a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size() ||
        a.regions.size() != b.regions.size()) {
      unlike(a);
    }
    std::vector<BatchDependence>& bodies = bodies_.emplace_back();
    for (size_t r = 0; r < a.regions.size(); ++r) bodies.emplace_back(*a.regions[r].body, batch, *b.regions[r].body, other_batch);
    for (size_t k = 0; k < a.inputs.size(); ++k) Match(a.inputs[k], b.inputs[k], a);
    for (size_t k = 0; k < a.outputs.size(); ++k) Match(a.outputs[k], b.outputs[k], a);
  }
  if (graph.inputs.size() != other.inputs.size() || graph.outputs.size() != other.outputs.size()) unlike(kEnd);
  for (size_t i = 0; i < graph.inputs.size(); ++i) Match(graph.inputs[i], other.inputs[i], kEnd);
  for (size_t i = 0; i < graph.outputs.size(); ++i) Match(graph.outputs[i], other.outputs[i], kEnd);
}

void BatchDependence::Match(ValueId id, ValueId other, const Node& node) {
  if (id == kNoValue && other == kNoValue) return;
  const auto fails = [&] {
    Refuse<GraphMismatch>(
        "at batch size " + std::to_string(other_batch_) + " the operator has different operands than at " + std::to_string(batch_),
        Describe(node));
  };
  if (id == kNoValue || other == kNoValue) fails();
  ValueId& known = other_of_[static_cast<size_t>(id)];
  const Value &a = graph_.value(id), &b = other_.value(other);
  if (a.role != b.role || a.dtype != b.dtype || a.shape.rank() != b.shape.rank()) fails();
  if (known == kNoValue) known = other;
  if (known == other) return;
  // Equal constants may be one value in one graph and two in the other.
  const Tensor *one = other_.data(known), *two = other_.data(other);
  if (a.role != Role::kConst || one == nullptr || two == nullptr || !SameTensor(*one, *two)) fails();
}

std::vector<int> BatchDependence::growing_axes(ValueId id) const {
  const ValueId other = other_of_[static_cast<size_t>(id)];
  std::vector<int> axes;
  if (other == kNoValue) return axes;
  for (int i = 0; i < graph_.value(id).shape.rank(); ++i) {
    if (graph_.value(id).shape[i] != other_.value(other).shape[i]) axes.push_back(i);
  }
  return axes;
}

int BatchDependence::growing(ValueId id) const {
  const std::vector<int> axes = growing_axes(id);
  if (axes.size() > 1) {
    Refuse("'" + Escaped(graph_.value(id).name) + "' " + graph_.value(id).shape.ToString() + " has two axes that depend on the batch size",
           "axes " + std::to_string(axes[0]) + " and " + std::to_string(axes[1]));
  }
  return axes.empty() ? -1 : axes[0];
}

int64_t BatchDependence::At(int64_t here, int64_t there, int64_t batch, const std::string& what) const {
  const int64_t rise = there - here, run = other_batch_ - batch_, change = rise * (batch - batch_);
  if (change % run != 0) {
    Refuse(what + " is " + std::to_string(here) + " at batch size " + std::to_string(batch_) + " and " + std::to_string(there) + " at " +
               std::to_string(other_batch_) + ", so it is not an integer at " + std::to_string(batch),
           "");
  }
  return here + change / run;
}

Shape BatchDependence::ShapeAt(ValueId id, int64_t batch) const {
  Shape shape = graph_.value(id).shape;
  const std::vector<int> axes = growing_axes(id);
  if (axes.empty()) return shape;
  int64_t& extent = shape[axes[0]];
  extent = At(extent, other_.value(other_of_[static_cast<size_t>(id)]).shape[axes[0]], batch,
              "the extent of '" + Escaped(graph_.value(id).name) + "'");
  return shape;
}

Attributes BatchDependence::AttributesAt(size_t node, int64_t batch) const {
  const Node &here = graph_.nodes[node], &there = other_.nodes[node];
  Attributes attributes = here.attributes;
  for (const auto& [name, value] : here.attributes) {
    const std::string what = "attribute '" + Escaped(name) + "' of " + Describe(here);
    if (!there.attributes.has(name)) Refuse(what + " exists at only one batch size", Describe(here));
    if (const auto* number = std::get_if<int64_t>(&value)) {
      attributes.set(name, At(*number, there.attributes.Int(name, 0), batch, what));
    } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) {
      const std::vector<int64_t> others = there.attributes.Ints(name);
      if (others.size() != numbers->size()) Refuse(what + " has different lengths at different batch sizes", Describe(here));
      std::vector<int64_t> made;
      for (size_t i = 0; i < others.size(); ++i) made.push_back(At((*numbers)[i], others[i], batch, what));
      attributes.set(name, std::move(made));
    }
  }
  return attributes;
}

int64_t BatchDependence::PositionsPerSample(ValueId id) const {
  const Tensor* data = graph_.data(id);
  const int axis = growing(id);
  if (data == nullptr || data->bytes() == 0 || Repeats(*data, axis, 1)) return 0;
  const int64_t extent = data->shape()[axis], places = extent / batch_;
  return places * batch_ == extent && Repeats(*data, axis, places) ? places : -1;
}

std::vector<int64_t> BatchDependence::StepsOf(ValueId id) const {
  const Tensor* data = graph_.data(id);
  const int axis = growing(id);
  if (data == nullptr || axis < 0) return {};
  const Tensor* there = other_.data(other_of_[static_cast<size_t>(id)]);
  std::vector<int64_t> steps = StepsAlong(*data, axis, batch_);
  // With a batch of two, any two numbers form an arithmetic sequence, so the other batch is checked too.
  if (there == nullptr || steps.empty() || (other_batch_ > 1 && StepsAlong(*there, axis, other_batch_) != steps)) return {};
  return steps;
}

const Tensor* BatchDependence::OtherNumber(ValueId id) const {
  const Value& value = graph_.value(id);
  const ValueId other = other_of_[static_cast<size_t>(id)];
  const Tensor* here = graph_.data(id);
  if (value.role != Role::kConst || here == nullptr || other == kNoValue || !IsInteger(value.dtype)) return nullptr;
  const Tensor* there = other_.data(other);
  return there == nullptr || there->shape() != here->shape() || SameTensor(*here, *there) ? nullptr : there;
}

Tensor BatchDependence::ConstantAt(ValueId id, int64_t batch, bool counted) const {
  const Tensor& here = *graph_.data(id);
  const ValueId other = other_of_[static_cast<size_t>(id)];
  if (other == kNoValue || other_.data(other) == nullptr || SameTensor(here, *other_.data(other))) return here;
  const Tensor& there = *other_.data(other);
  const std::string what = "constant '" + Escaped(graph_.value(id).name) + "'";
  const int axis = growing(id);
  if (axis >= 0) {
    const int64_t places = PositionsPerSample(id), period = counted ? here.shape()[axis] : std::max<int64_t>(places, 1);
    if (places < 0 && !counted) Refuse(what + " " + here.shape().ToString() + " differs between samples", "");
    // All samples are equal along the axis, so any range of them will do.
    Tensor made(here.dtype(), ShapeAt(id, batch));
    int64_t outer = 1, inner = DTypeBytes(here.dtype());
    for (int i = 0; i < here.shape().rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : here.shape()[i];
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < made.shape()[axis]; ++i) {
        std::memcpy(static_cast<std::byte*>(made.data()) + (o * made.shape()[axis] + i) * inner,
                    static_cast<const std::byte*>(here.data()) + (o * here.shape()[axis] + i % period) * inner, static_cast<size_t>(inner));
      }
    }
    return made;
  }
  if (!IsInteger(here.dtype())) return here;
  Tensor made(here.dtype(), here.shape());
  std::memcpy(made.data(), here.data(), static_cast<size_t>(here.bytes()));
  for (int64_t i = 0; i < here.elements(); ++i) {
    const int64_t number = At(ElementAsInt(here.view(), i), ElementAsInt(there.view(), i), batch, what);
    if (here.dtype() == DType::kInt64) {
      static_cast<int64_t*>(made.data())[i] = number;
    } else if (here.dtype() == DType::kInt32) {
      static_cast<int32_t*>(made.data())[i] = static_cast<int32_t>(number);
    } else if (number != ElementAsInt(here.view(), i)) {
      Refuse(what + " of type " + std::string(DTypeName(here.dtype())) + " differs between batch sizes", "");
    }
  }
  return made;
}

}  // namespace gradloom

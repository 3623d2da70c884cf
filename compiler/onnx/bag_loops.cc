// A loop over bags, as exporters write nn.EmbeddingBag: round i takes the i-th of equal parts of a tensor, and makes one row of it by
// a sum, a mean or a maximum. Written out as a loop it has a node for each sample; here all rounds are computed at once, with the parts
// beside each other, [rounds, length, ...], so that a batch can be any, and be divided.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch_axis.h"
#include "compiler/onnx/importer.h"

namespace gradloom {
namespace {

constexpr int64_t kMostRounds = 1 << 16;
// A loop over bags has some ten values in a round, and needs a few of them in each. A file may have any loop.
constexpr int64_t kMostSteps = int64_t{1} << 23;
constexpr int kDeepest = 128;

bool IsPlain(const onnx::NodeProto& node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

}  // namespace

// What it does not know makes it give up, and the loop is run as any other. Values of the body are made where an output needs them, each
// once, for all rounds.
class Importer::BagLoop {
 public:
  BagLoop(Importer& importer, const LoopParts& parts, const std::string& origin, const Scope& scope, BagNumbers& numbers)
      : i_(importer),
        parts_(parts),
        origin_(origin),
        body_{&parts.graph, nullptr, importer.Nested(scope, origin + "/"), {}},
        numbers_(numbers),
        replays_(numbers.bags) {
    i_.AddInitializers(parts.graph, body_.scope);
  }

  // What the loop gives; nothing where it is no such loop.
  std::optional<std::vector<Binding>> Run();

 private:
  // What a value of the body is over all rounds, or over those in which a branch is taken.
  struct Lane {
    enum class Kind : uint8_t {
      kSame,       // one value, of the graph around
      kNumbers,    // an integer or a truth in each round, known
      kGathered,   // the sequence of the rows of the rounds before
      kAppended,   // the same with this round's
      kPart,       // [rounds, length, ...] of a [length, ...] in each round
      kRow,        // what `by` makes of a part along its length in each round
      kPlace,      // where a loop within, over the elements of a part, is
      kNext,       // the place behind that
      kElement,    // [rounds, length] of what it has there
      kPlaces,     // places that it has kept so far
      kPlaceKept,  // the same with this one
      kKept,       // those that it keeps: where `id` is true
      kCount,      // how many
      kNone,       // whether there are none
    };
    Kind kind = Kind::kSame;
    ValueId id = kNoValue;
    std::vector<int64_t> numbers = {};  // by round
    ValueId kept = kNoValue;            // of a part: [rounds, length], what of it is there; kNoValue: all
    std::string by = {};                // of a row: ReduceSum, ReduceMean or ReduceMax
    bool single = false;                // of a row: it is [1, ...] in each round
    bool operator==(const Lane&) const = default;
  };
  using Made = std::optional<Lane>;
  using Kind = Lane::Kind;

  struct Body {
    const onnx::GraphProto* graph;
    Body* outer;
    Scope scope;
    std::map<std::string, Made> lanes;
  };

  bool FindRounds();
  const onnx::NodeProto* Maker(const std::string& name, const onnx::GraphProto& graph);
  Made Eval(const std::string& name, Body& body);
  Made EvalNode(const onnx::NodeProto& node, Body& body);
  Made EvalIf(const onnx::NodeProto& node, Body& body);
  Made EvalKept(const onnx::NodeProto& node, Body& body);
  Made EvalBranch(const onnx::NodeProto& node, const char* name, Body& body);
  Made EvalGather(const onnx::NodeProto& node, const Lane& data, const Lane& indices);
  Made NumbersAt(const Lane& list, const std::vector<int64_t>& begins, const std::vector<int64_t>& ends);
  Made EvalSlice(const onnx::NodeProto& node, Body& body, const Lane& data);
  Made EvalBinary(const onnx::NodeProto& node, const Lane& a, const Lane& b);
  Made EvalReduced(const onnx::NodeProto& node, Body& body, const Lane& part);
  Made EvalConstant(const onnx::NodeProto& node, Body& body);
  Made EvalWhere(const std::vector<bool>& rounds, const onnx::NodeProto& node, const char* name, Body& body);
  ValueId Reduced(const Lane& row);

  // Data that is known, or null.
  const Tensor* Constant(const Lane& lane) { return lane.kind == Kind::kSame ? Constant(lane.id) : nullptr; }
  const Tensor* Constant(ValueId id);
  // Of the axis that parts are taken from.
  int64_t ExtentOf(ValueId id);
  const Tensor* Read(std::optional<Tensor> now);
  std::optional<std::vector<int64_t>> Numbers(const Lane& lane);
  std::optional<std::vector<int64_t>> Axes(const onnx::NodeProto& node, int input, Body& body);
  bool TakesParts(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t extent);
  ValueId Parts(ValueId data);
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return i_.EmitOp(op, std::move(inputs), std::move(attributes), origin_, "");
  }
  bool active(size_t round) const { return active_.empty() || active_[round]; }
  ValueId Ints(const std::vector<int64_t>& values) { return i_.Ints(origin_, values); }
  DType TypeOf(ValueId id) const { return i_.emitter().graph().value(id).dtype; }
  // Of a single number that elements of a type are compared with, or added to.
  ValueId NumberAs(int64_t number, DType dtype) {
    return i_.emitter().AddConstant(origin_ + "/number", Converted(Tensor::Scalar<int64_t>(number).view(), dtype));
  }

  Importer& i_;
  const LoopParts& parts_;
  const std::string& origin_;
  Body body_;
  BagNumbers& numbers_;
  const bool replays_;
  size_t read_ = 0;    // of numbers_
  int64_t steps_ = 0;  // nodes that were looked at
  int depth_ = 0;      // values that are being made
  int64_t length_ = 0;
  int64_t rounds_ = 0;
  std::vector<bool> active_;                  // the rounds in which the branch at hand is taken; empty: all
  std::map<ValueId, ValueId> taken_;          // the parts of a value
  std::vector<std::vector<int64_t>> states_;  // of integers that the loop carries, by round and behind the last one; empty: of others
};

const Tensor* Importer::BagLoop::Read(std::optional<Tensor> now) {
  if (!replays_) {
    numbers_.read.push_back(std::move(now));
  } else if (read_ >= numbers_.read.size()) {
    return nullptr;
  }
  const std::optional<Tensor>& read = numbers_.read[read_++];
  return read ? &*read : nullptr;
}

const Tensor* Importer::BagLoop::Constant(ValueId id) {
  const Tensor* data = i_.emitter().Constant(i_.emitter().Computed(id));
  return Read(data == nullptr ? std::nullopt : std::optional(*data));
}

int64_t Importer::BagLoop::ExtentOf(ValueId id) {
  const Shape& shape = i_.emitter().graph().value(id).shape;
  const Tensor* extent = Read(shape.rank() == 0 ? std::nullopt : std::optional(Tensor::Scalar<int64_t>(shape[0])));
  return extent == nullptr ? 0 : extent->as<int64_t>()[0];
}

// Numbers of one round after the other, until there is no other: a loop may have no count but a condition, of an integer that it carries.
bool Importer::BagLoop::FindRounds() {
  const auto& graph = parts_.graph;
  states_.resize(parts_.states.size());
  for (size_t s = 0; s < states_.size(); ++s) {
    const Binding& state = parts_.states[s];
    if (state.sequence != nullptr && state.sequence->empty()) continue;
    const Tensor* first = state.tensor == kNoValue ? nullptr : Constant(state.tensor);
    if (first == nullptr || first->dtype() != DType::kInt64 || first->elements() != 1) return false;
    states_[s].push_back(first->as<int64_t>()[0]);
  }
  const Tensor* count = parts_.trip_count == kNoValue ? nullptr : Constant(parts_.trip_count);
  if (parts_.condition != kNoValue || (parts_.trip_count != kNoValue && count == nullptr)) return false;
  const int64_t most = count == nullptr ? kMostRounds : count->as<int64_t>()[0];
  if (most < 1 || most > kMostRounds) return false;
  int64_t trip = 0;
  for (bool going = true; going && trip < most; ++trip) {
    rounds_ = 1;
    body_.lanes.clear();
    body_.lanes[graph.input(0).name()] = Lane{.kind = Kind::kNumbers, .numbers = {trip}};
    body_.lanes[graph.input(1).name()] = Lane{.kind = Kind::kNumbers, .numbers = {1}};
    for (size_t s = 0; s < states_.size(); ++s) {
      const std::string& name = graph.input(static_cast<int>(s) + 2).name();
      body_.lanes[name] = states_[s].empty() ? Made() : Lane{.kind = Kind::kNumbers, .numbers = {states_[s].back()}};
    }
    const auto number = [&](int output) -> std::optional<int64_t> {
      const Made lane = Eval(graph.output(output).name(), body_);
      const auto numbers = lane ? Numbers(*lane) : std::nullopt;
      return numbers ? std::optional(numbers->at(0)) : std::nullopt;
    };
    const auto goes_on = number(0);
    if (!goes_on) return false;
    going = *goes_on != 0;
    for (size_t s = 0; s < states_.size(); ++s) {
      const auto next = states_[s].empty() ? std::optional<int64_t>() : number(static_cast<int>(s) + 1);
      if (!states_[s].empty() && !next) return false;
      if (next) states_[s].push_back(*next);
    }
  }
  rounds_ = trip;
  return parts_.trip_count != kNoValue || trip < kMostRounds;
}

std::optional<std::vector<Binding>> Importer::BagLoop::Run() {
  if (!FindRounds()) return std::nullopt;
  const auto& graph = parts_.graph;
  body_.lanes.clear();
  std::vector<int64_t> trips;
  for (int64_t trip = 0; trip < rounds_; ++trip) trips.push_back(trip);
  body_.lanes[graph.input(0).name()] = Lane{.kind = Kind::kNumbers, .numbers = trips};
  body_.lanes[graph.input(1).name()] = Lane{.kind = Kind::kNumbers, .numbers = std::vector<int64_t>(trips.size(), 1)};
  std::vector<Binding> results;
  for (size_t s = 0; s < states_.size(); ++s) {
    Lane& lane = *(body_.lanes[graph.input(static_cast<int>(s) + 2).name()] = Lane{});
    lane.kind = states_[s].empty() ? Kind::kGathered : Kind::kNumbers;
    if (!states_[s].empty()) lane.numbers.assign(states_[s].begin(), states_[s].end() - 1);
  }
  bool rows = false;
  for (int i = 1; i < graph.output_size(); ++i) {
    const size_t s = static_cast<size_t>(i) - 1;
    Binding& result = results.emplace_back();
    if (s < states_.size() && !states_[s].empty()) {
      const Shape& shape = i_.emitter().graph().value(parts_.states[s].tensor).shape;
      Tensor last(DType::kInt64, shape);
      last.as<int64_t>()[0] = states_[s].back();
      result.tensor = i_.emitter().AddConstant(origin_ + "/last", std::move(last));
      continue;
    }
    const Made lane = Eval(graph.output(i).name(), body_);
    if (!lane || lane->kind != (s < states_.size() ? Kind::kAppended : Kind::kRow)) return std::nullopt;
    if (s >= states_.size() && lane->single) return std::nullopt;
    rows = true;
    (s < states_.size() ? result.rows : result.tensor) = Reduced(*lane);
  }
  return rows ? std::optional(std::move(results)) : std::nullopt;
}

// The node of this graph that makes a value; null where none does, or where too many have been looked at.
const onnx::NodeProto* Importer::BagLoop::Maker(const std::string& name, const onnx::GraphProto& graph) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (++steps_ > kMostSteps) return nullptr;
    if (std::find(node.output().begin(), node.output().end(), name) != node.output().end()) return &node;
  }
  return nullptr;
}

Importer::BagLoop::Made Importer::BagLoop::Eval(const std::string& name, Body& body) {
  if (const auto known = body.lanes.find(name); known != body.lanes.end()) return known->second;
  // The same in each round.
  if (const auto known = body.scope.names.find(name); known != body.scope.names.end())
    return known->second.tensor == kNoValue ? Made() : Lane{.kind = Kind::kSame, .id = known->second.tensor};
  if (const onnx::NodeProto* node = Maker(name, *body.graph)) {
    if (depth_ == kDeepest) return std::nullopt;
    ++depth_;
    Made made = EvalNode(*node, body);
    --depth_;
    return body.lanes.try_emplace(name, std::move(made)).first->second;
  }
  if (steps_ > kMostSteps) return std::nullopt;
  if (body.outer != nullptr) return Eval(name, *body.outer);
  const Binding* binding = i_.Find(name, body.scope);
  if (binding == nullptr || binding->tensor == kNoValue) return std::nullopt;
  return Lane{.kind = Kind::kSame, .id = binding->tensor};
}

std::optional<std::vector<int64_t>> Importer::BagLoop::Numbers(const Lane& lane) {
  if (lane.kind == Kind::kNumbers) return lane.numbers;
  const Tensor* data = Constant(lane);
  if (data == nullptr || data->elements() != 1 || (!IsInteger(data->dtype()) && data->dtype() != DType::kBool)) return std::nullopt;
  return std::vector<int64_t>(static_cast<size_t>(rounds_), ElementAsInt(data->view(), 0));
}

Importer::BagLoop::Made Importer::BagLoop::EvalNode(const onnx::NodeProto& node, Body& body) {
  if (!IsPlain(node)) return std::nullopt;
  const std::string& op = node.op_type();
  if (op == "Constant") {
    i_.RunConstant(node, body.scope);
    return Lane{.kind = Kind::kSame, .id = body.scope.names.at(node.output(0)).tensor};
  }
  if (op == "If") return EvalIf(node, body);
  if (op == "Loop") return EvalKept(node, body);
  if (Made same = EvalConstant(node, body)) return same;
  if (node.input_size() == 0 || node.output_size() != 1 || node.input(0).empty()) return std::nullopt;
  const Made first = Eval(node.input(0), body);
  if (!first || op == "Identity") return first;
  const auto is = [&](Kind kind) { return first->kind == kind; };
  if (op == "Slice") return EvalSlice(node, body, *first);
  if (op.starts_with("Reduce")) return EvalReduced(node, body, *first);
  if (op == "Size" && is(Kind::kKept)) return Lane{.kind = Kind::kCount, .id = first->id};
  if (op == "Not" && is(Kind::kElement) && TypeOf(first->id) == DType::kBool)
    return Lane{.kind = Kind::kElement, .id = Emit("Not", {first->id})};
  if (op == "Cast" || op == "CastLike" || op == "Reshape" || op == "Unsqueeze" || op == "Squeeze") {
    // A single number is one in whatever shape and of whatever type.
    if (const auto numbers = Numbers(*first)) return Lane{.kind = Kind::kNumbers, .numbers = *numbers};
    if (is(Kind::kPlace) && op == "Reshape") return first;
    if (op == "Unsqueeze" && is(Kind::kPart)) {
      auto axes = Axes(node, 1, body);
      if (!axes || axes->size() != 1 || axes->at(0) < 1 || first->kept != kNoValue) return std::nullopt;
      return Lane{.kind = Kind::kPart, .id = Emit("Unsqueeze", {first->id, Ints({axes->at(0) + 1})})};
    }
    return std::nullopt;
  }
  if (node.input_size() < 2) return std::nullopt;
  const Made second = Eval(node.input(1), body);
  if (!second) return std::nullopt;
  if (op == "SequenceInsert" && node.input_size() == 2 && is(Kind::kGathered) && second->kind == Kind::kRow && second->single)
    return Lane{.kind = Kind::kAppended, .id = second->id, .kept = second->kept, .by = second->by};
  if (op == "Concat" && node.input_size() == 2 && is(Kind::kPlaces) && second->kind == Kind::kPlace) return Lane{.kind = Kind::kPlaceKept};
  if (op == "Gather") {
    const auto* axis = i_.FindAttribute(node, "axis", body.scope);
    return axis == nullptr || axis->i() == 0 ? EvalGather(node, *first, *second) : std::nullopt;
  }
  return EvalBinary(node, *first, *second);
}

Importer::BagLoop::Made Importer::BagLoop::EvalBinary(const onnx::NodeProto& node, const Lane& a, const Lane& b) {
  const std::string& op = node.op_type();
  const auto x = Numbers(a), y = Numbers(b);
  if (x && y) {
    Lane made{.kind = Kind::kNumbers};
    for (size_t i = 0; i < x->size(); ++i) {
      const int64_t p = (*x)[i], q = (*y)[i];
      if (op != "Add" && op != "Sub" && op != "Less" && op != "Equal" && op != "Greater") return std::nullopt;
      made.numbers.push_back(op == "Add" ? p + q : op == "Sub" ? p - q : op == "Less" ? p < q : op == "Equal" ? p == q : p > q);
    }
    return made;
  }
  const auto all = [&](int64_t number) { return y && std::all_of(y->begin(), y->end(), [&](int64_t n) { return n == number; }); };
  if (op == "Equal" && a.kind == Kind::kCount && all(0)) return Lane{.kind = Kind::kNone, .id = a.id};
  if (op == "Add" && a.kind == Kind::kPlace && all(1)) return Lane{.kind = Kind::kNext};
  if ((op == "Less" || op == "Equal" || op == "Add") && a.kind == Kind::kElement && y && all(y->at(0)))
    return Lane{.kind = Kind::kElement, .id = Emit(op, {a.id, NumberAs(y->at(0), TypeOf(a.id))})};
  if (op == "Div" && a.kind == Kind::kRow && a.by == "ReduceSum" && a.kept == kNoValue && y) {
    for (size_t i = 0; i < y->size(); ++i) {
      if (active(i) && (*y)[i] != length_) return std::nullopt;
    }
    return Lane{.kind = Kind::kRow, .id = a.id, .by = "ReduceMean", .single = a.single};
  }
  // Parts of as many axes lie on each other as in each round.
  const Graph& graph = i_.emitter().graph();
  if (op == "Mul" && a.kind == Kind::kPart && b.kind == Kind::kPart && a.kept == b.kept &&
      graph.value(a.id).shape.rank() == graph.value(b.id).shape.rank())
    return Lane{.kind = Kind::kPart, .id = Emit("Mul", {a.id, b.id}), .kept = a.kept};
  return std::nullopt;
}

Importer::BagLoop::Made Importer::BagLoop::EvalGather(const onnx::NodeProto&, const Lane& data, const Lane& indices) {
  if (data.kind != Kind::kSame) return std::nullopt;
  if (const auto numbers = Numbers(indices)) {
    std::vector<int64_t> behind = *numbers;
    for (int64_t& at : behind) ++at;
    return NumbersAt(data, *numbers, behind);
  }
  if (indices.kind == Kind::kPart && indices.kept == kNoValue)
    return Lane{.kind = Kind::kPart, .id = Emit("Gather", {data.id, indices.id}, {{"axis", int64_t{0}}})};
  if (indices.kind != Kind::kPlace && indices.kind != Kind::kKept) return std::nullopt;
  if (ExtentOf(data.id) != rounds_ * length_) return std::nullopt;
  if (indices.kind == Kind::kKept) return Lane{.kind = Kind::kPart, .id = Parts(data.id), .kept = indices.id};
  if (i_.emitter().graph().value(data.id).shape.rank() != 1) return std::nullopt;
  return Lane{.kind = Kind::kElement, .id = Parts(data.id)};
}

// One element of a list in each round, from `begins` to `ends`.
Importer::BagLoop::Made Importer::BagLoop::NumbersAt(const Lane& list, const std::vector<int64_t>& begins,
                                                     const std::vector<int64_t>& ends) {
  const Tensor* known = Constant(list);
  if (known == nullptr || known->shape().rank() != 1 || !IsInteger(known->dtype())) return std::nullopt;
  Lane made{.kind = Kind::kNumbers};
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t at = begins[i];
    const bool one = at >= 0 && at < known->shape()[0] && ends[i] == at + 1;
    if (!one && active(i)) return std::nullopt;
    made.numbers.push_back(one ? ElementAsInt(known->view(), at) : 0);
  }
  return made;
}

// The i-th part in round i. The first one says how long they are.
bool Importer::BagLoop::TakesParts(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t extent) {
  for (size_t i = 0; i < ends.size() && length_ == 0; ++i) {
    if (active(i)) length_ = ends[i] - begins[i];
  }
  if (length_ <= 0 || rounds_ * length_ != extent) return false;
  for (int64_t i = 0; i < rounds_; ++i) {
    const auto at = static_cast<size_t>(i);
    if (active(at) && (begins[at] != i * length_ || std::min(ends[at], extent) != (i + 1) * length_)) return false;
  }
  return true;
}

ValueId Importer::BagLoop::Parts(ValueId data) {
  ValueId& parts = taken_.try_emplace(data, kNoValue).first->second;
  if (parts != kNoValue) return parts;
  const Shape& shape = i_.emitter().graph().value(data).shape;
  std::vector<int64_t> target{rounds_, length_};
  for (int axis = 1; axis < shape.rank(); ++axis) target.push_back(shape[axis]);
  return parts = Emit("Reshape", {data, Ints(target)});
}

Importer::BagLoop::Made Importer::BagLoop::EvalSlice(const onnx::NodeProto& node, Body& body, const Lane& data) {
  if (node.input_size() < 3 || node.input_size() > 4 || data.kind != Kind::kSame) return std::nullopt;
  const Made begin = Eval(node.input(1), body), end = Eval(node.input(2), body);
  const auto begins = begin ? Numbers(*begin) : std::nullopt, ends = end ? Numbers(*end) : std::nullopt;
  if (!begins || !ends) return std::nullopt;
  if (node.input_size() == 4 && Axes(node, 3, body) != std::vector<int64_t>{0}) return std::nullopt;
  if (Made numbers = NumbersAt(data, *begins, *ends)) return numbers;
  if (!TakesParts(*begins, *ends, ExtentOf(data.id))) return std::nullopt;
  return Lane{.kind = Kind::kPart, .id = Parts(data.id)};
}

std::optional<std::vector<int64_t>> Importer::BagLoop::Axes(const onnx::NodeProto& node, int input, Body& body) {
  if (const auto* axes = i_.FindAttribute(node, "axes", body.scope)) return std::vector<int64_t>(axes->ints().begin(), axes->ints().end());
  const Made lane = node.input_size() > input ? Eval(node.input(input), body) : std::nullopt;
  const Tensor* data = lane ? Constant(*lane) : nullptr;
  return data != nullptr && data->dtype() == DType::kInt64 ? std::optional(IntValues(data->view())) : std::nullopt;
}

Importer::BagLoop::Made Importer::BagLoop::EvalReduced(const onnx::NodeProto& node, Body& body, const Lane& part) {
  const std::string& op = node.op_type();
  if ((op != "ReduceSum" && op != "ReduceMean" && op != "ReduceMax") || part.kind != Kind::kPart) return std::nullopt;
  if (Axes(node, 1, body) != std::vector<int64_t>{0} || !IsFloating(TypeOf(part.id))) return std::nullopt;
  const auto* keeps = i_.FindAttribute(node, "keepdims", body.scope);
  return Lane{.kind = Kind::kRow, .id = part.id, .kept = part.kept, .by = op, .single = keeps == nullptr || keeps->i() != 0};
}

// The rows of all rounds, of all of each part or of what is kept of it; zeros where that is nothing.
ValueId Importer::BagLoop::Reduced(const Lane& row) {
  const ValueId axis = Ints({1});
  const auto reduced = [&](const std::string& by, ValueId id) { return Emit(by, {id, axis}, {{"keepdims", int64_t{0}}}); };
  if (row.kept == kNoValue) return reduced(row.by, row.id);
  const int rank = i_.emitter().graph().value(row.id).shape.rank();
  const DType dtype = TypeOf(row.id);
  // A value by part, or by element of one, beside rows or parts.
  const auto spread = [&](ValueId id, int from) {
    std::vector<int64_t> axes;
    for (int i = 2; i < rank; ++i) axes.push_back(i + from - 2);
    return axes.empty() ? id : Emit("Unsqueeze", {id, Ints(axes)});
  };
  const ValueId zero = NumberAs(0, dtype), kept = spread(row.kept, 2);
  const ValueId count = reduced("ReduceSum", Emit("Cast", {row.kept}, {{"to", static_cast<int64_t>(dtype)}}));
  if (row.by == "ReduceMax") {
    const double least = -(dtype == DType::kFloat16 ? 65504.0 : 3e38);
    const ValueId lowest = i_.emitter().AddConstant(origin_ + "/lowest", Converted(Tensor::Scalar<double>(least).view(), dtype));
    const ValueId most = reduced("ReduceMax", Emit("Where", {kept, row.id, lowest}));
    return Emit("Where", {spread(Emit("Greater", {count, zero}), 1), most, zero});
  }
  const ValueId sum = reduced("ReduceSum", Emit("Where", {kept, row.id, zero}));
  return row.by == "ReduceSum" ? sum : Emit("Div", {sum, spread(Emit("Max", {count, NumberAs(1, dtype)}), 1)});
}

// What is computed of what is known, and the same in each round.
Importer::BagLoop::Made Importer::BagLoop::EvalConstant(const onnx::NodeProto& node, Body& body) {
  static const std::set<std::string> kOps = {"Shape",   "Size",  "Concat",         "Expand", "Cast", "CastLike", "Reshape", "Unsqueeze",
                                             "Squeeze", "Slice", "Gather",         "Add",    "Sub",  "Mul",      "Equal",   "Less",
                                             "Range",   "Where", "ConstantOfShape"};
  if (!kOps.contains(node.op_type()) || node.output_size() != 1) return std::nullopt;
  std::vector<std::pair<std::string, ValueId>> operands;
  for (const std::string& input : node.input()) {
    const Made lane = input.empty() ? Made() : Eval(input, body);
    if (!lane || lane->kind != Kind::kSame) return std::nullopt;
    if (node.op_type() != "Shape" && node.op_type() != "Size" && Constant(*lane) == nullptr) return std::nullopt;
    operands.emplace_back(input, lane->id);
  }
  for (const auto& [name, id] : operands) body.scope.names.try_emplace(name, Binding{id, nullptr});
  i_.RunNode(node, body.scope);
  const Binding& made = body.scope.names.at(node.output(0));
  return made.tensor == kNoValue ? Made() : Lane{.kind = Kind::kSame, .id = made.tensor};
}

Importer::BagLoop::Made Importer::BagLoop::EvalBranch(const onnx::NodeProto& node, const char* name, Body& body) {
  const onnx::AttributeProto* attribute = i_.FindAttribute(node, name, body.scope);
  if (attribute == nullptr || !attribute->has_g() || attribute->g().output_size() != 1) return std::nullopt;
  Body branch{&attribute->g(), &body, i_.Nested(body.scope, body.scope.path), {}};
  i_.AddInitializers(attribute->g(), branch.scope);
  return Eval(attribute->g().output(0).name(), branch);
}

// The branch in these rounds. What it needs of the body around it is known for them alone.
Importer::BagLoop::Made Importer::BagLoop::EvalWhere(const std::vector<bool>& rounds, const onnx::NodeProto& node, const char* name,
                                                     Body& body) {
  if (std::find(rounds.begin(), rounds.end(), true) == rounds.end()) return std::nullopt;
  if (rounds == active_ || (active_.empty() && std::find(rounds.begin(), rounds.end(), false) == rounds.end()))
    return EvalBranch(node, name, body);
  std::vector<std::map<std::string, Made>> lanes;
  for (const Body* at = &body; at != nullptr; at = at->outer) lanes.push_back(at->lanes);
  const std::vector<bool> before = std::exchange(active_, rounds);
  Made made = EvalBranch(node, name, body);
  active_ = before;
  size_t k = 0;
  for (Body* at = &body; at != nullptr; at = at->outer) at->lanes = std::move(lanes[k++]);
  return made;
}

Importer::BagLoop::Made Importer::BagLoop::EvalIf(const onnx::NodeProto& node, Body& body) {
  const Made condition = node.input_size() == 1 && node.output_size() == 1 ? Eval(node.input(0), body) : std::nullopt;
  if (!condition) return std::nullopt;
  if (const auto numbers = Numbers(*condition)) {
    std::vector<bool> then(numbers->size()), other(numbers->size());
    for (size_t i = 0; i < numbers->size(); ++i) (((*numbers)[i] != 0 ? then : other)[i]) = active(i);
    // Where both are taken, the last round in another way than the others, they are to make the same.
    const Made yes = EvalWhere(then, node, "then_branch", body), no = EvalWhere(other, node, "else_branch", body);
    const auto any = [](const std::vector<bool>& rounds) { return std::find(rounds.begin(), rounds.end(), true) != rounds.end(); };
    if (!any(then) || !any(other)) return any(then) ? yes : no;
    return yes && no && *yes == *no ? yes : std::nullopt;
  }
  const Made yes = EvalBranch(node, "then_branch", body), no = EvalBranch(node, "else_branch", body);
  if (!yes || !no) return std::nullopt;
  if (condition->kind == Kind::kNone) {
    // What is made of no element is zeros already.
    const Tensor* zeros = Constant(*yes);
    if (zeros == nullptr || !IsFloating(zeros->dtype()) || no->kind != Kind::kRow) return std::nullopt;
    for (int64_t i = 0; i < zeros->elements(); ++i) {
      if (ElementAsDouble(zeros->view(), i) != 0) return std::nullopt;
    }
    return no;
  }
  if (condition->kind != Kind::kElement || TypeOf(condition->id) != DType::kBool) return std::nullopt;
  if (yes->kind == Kind::kElement && no->kind == Kind::kElement)
    return Lane{.kind = Kind::kElement, .id = Emit("Where", {condition->id, yes->id, no->id})};
  if (yes->kind == Kind::kPlaceKept && no->kind == Kind::kPlaces) return Lane{.kind = Kind::kKept, .id = condition->id};
  return std::nullopt;
}

// The loop within that goes over the elements of a part and keeps the places of some.
Importer::BagLoop::Made Importer::BagLoop::EvalKept(const onnx::NodeProto& node, Body& body) {
  const onnx::AttributeProto* attribute = i_.FindAttribute(node, "body", body.scope);
  if (attribute == nullptr || !attribute->has_g() || body.outer != nullptr) return std::nullopt;
  const onnx::GraphProto& graph = attribute->g();
  if (node.input_size() != 4 || !node.input(0).empty() || graph.input_size() != 4 || graph.output_size() != 3 || node.output_size() != 2)
    return std::nullopt;
  // The place and the list, in any order.
  Made start = Eval(node.input(2), body), list = Eval(node.input(3), body);
  const bool list_first = start && Constant(*start) != nullptr && Constant(*start)->elements() == 0;
  if (list_first) std::swap(start, list);
  const int place = list_first ? 1 : 0;
  const Made goes = Eval(node.input(1), body);
  const auto going = goes ? Numbers(*goes) : std::nullopt, begins = start ? Numbers(*start) : std::nullopt;
  const Tensor* none = list ? Constant(*list) : nullptr;
  if (!going || !begins || none == nullptr || none->elements() != 0) return std::nullopt;
  if (std::find(going->begin(), going->end(), 0) != going->end()) return std::nullopt;
  // Another round, as long as the next place is before the end of the part.
  Body within{&graph, &body, i_.Nested(body.scope, body.scope.path), {}};
  i_.AddInitializers(graph, within.scope);
  within.lanes[graph.input(0).name()] = std::nullopt;
  within.lanes[graph.input(1).name()] = std::nullopt;
  within.lanes[graph.input(2 + place).name()] = Lane{.kind = Kind::kPlace};
  within.lanes[graph.input(3 - place).name()] = Lane{.kind = Kind::kPlaces};
  const onnx::NodeProto* less = nullptr;
  for (std::string name = graph.output(0).name(); less == nullptr;) {
    const onnx::NodeProto* made = Maker(name, graph);
    if (made == nullptr || made->output_size() != 1 || !IsPlain(*made)) return std::nullopt;
    if (made->op_type() != "Less" && made->op_type() != "Identity") return std::nullopt;
    if (made->op_type() == "Less") less = made;
    name = made->input(0);
  }
  const Made next = Eval(graph.output(1 + place).name(), within), until = Eval(less->input(0), within), end = Eval(less->input(1), within);
  const auto ends = end ? Numbers(*end) : std::nullopt;
  if (!next || next->kind != Kind::kNext || !until || until->kind != Kind::kNext || !ends) return std::nullopt;
  // What is gathered at the places must end with the last part, too.
  if (!TakesParts(*begins, *ends, ends->back())) return std::nullopt;
  const Made kept = Eval(graph.output(2 - place).name(), within);
  body.lanes[node.output(place)] = std::nullopt;
  return kept && kept->kind == Kind::kKept ? kept : std::nullopt;
}

bool Importer::RunBags(const LoopParts& parts, const std::string& origin, const Scope& scope, std::vector<Binding>& results) {
  if (!frames_.empty()) return false;
  BatchWatch* watch = emitter_.batch_watch();
  BagNumbers own;
  BagNumbers* numbers = watch == nullptr ? &own : watch->NextLoop();
  if (numbers == nullptr) return false;
  std::optional<std::vector<Binding>> made = BagLoop(*this, parts, origin, scope, *numbers).Run();
  numbers->bags = made.has_value();
  if (made) results = std::move(*made);
  return made.has_value();
}

}  // namespace gradloom

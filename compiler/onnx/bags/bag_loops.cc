#include "compiler/onnx/bags/bag_loops.h"

#include <algorithm>

#include "compiler/onnx/standard_domain.h"

namespace gradloom {
namespace {

constexpr int64_t kMaxIterations = 1 << 16;
// Limit on the nodes that are visited. A loop over bags has about ten values per iteration and needs a few of them; other loops may have
// any number.
constexpr int64_t kMaxSteps = int64_t{1} << 23;
constexpr int kDeepest = 128;

}  // namespace

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

// Determines the number of iterations by evaluating integers iteration by iteration: a loop may have no trip count, but a condition that
// depends on an integer that it carries.
bool Importer::BagLoop::FindTripCount() {
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
  const int64_t most = count == nullptr ? kMaxIterations : count->as<int64_t>()[0];
  if (most < 1 || most > kMaxIterations) return false;
  int64_t trip = 0;
  for (bool going = true; going && trip < most; ++trip) {
    trips_ = 1;
    body_.lanes.clear();
    body_.lanes[graph.input(0).name()] = Lane{.kind = Kind::kNumbers, .numbers = {trip}};
    body_.lanes[graph.input(1).name()] = Lane{.kind = Kind::kNumbers, .numbers = {1}};
    for (size_t s = 0; s < states_.size(); ++s) {
      const std::string& name = graph.input(static_cast<int>(s) + 2).name();
      body_.lanes[name] = states_[s].empty() ? MaybeLane() : Lane{.kind = Kind::kNumbers, .numbers = {states_[s].back()}};
    }
    const auto number = [&](int output) -> std::optional<int64_t> {
      const MaybeLane lane = Eval(graph.output(output).name(), body_);
      const auto numbers = lane ? Numbers(*lane) : std::nullopt;
      return numbers ? std::optional(numbers->at(0)) : std::nullopt;
    };
    const auto continues = number(0);
    if (!continues) return false;
    going = *continues != 0;
    for (size_t s = 0; s < states_.size(); ++s) {
      const auto next = states_[s].empty() ? std::optional<int64_t>() : number(static_cast<int>(s) + 1);
      if (!states_[s].empty() && !next) return false;
      if (next) states_[s].push_back(*next);
    }
  }
  trips_ = trip;
  return parts_.trip_count != kNoValue || trip < kMaxIterations;
}

std::optional<std::vector<Binding>> Importer::BagLoop::Run() {
  if (!FindTripCount()) return std::nullopt;
  const auto& graph = parts_.graph;
  body_.lanes.clear();
  std::vector<int64_t> trips;
  for (int64_t trip = 0; trip < trips_; ++trip) trips.push_back(trip);
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
    const MaybeLane lane = Eval(graph.output(i).name(), body_);
    if (!lane || lane->kind != (s < states_.size() ? Kind::kAppended : Kind::kRow)) return std::nullopt;
    if (s >= states_.size() && lane->single) return std::nullopt;
    rows = true;
    (s < states_.size() ? result.rows : result.tensor) = Reduced(*lane);
  }
  return rows ? std::optional(std::move(results)) : std::nullopt;
}

// Returns the node of this graph that produces a value; null if there is none, or if the limit on visited nodes is reached.
const onnx::NodeProto* Importer::BagLoop::Producer(const std::string& name, const onnx::GraphProto& graph) {
  for (const onnx::NodeProto& node : graph.node()) {
    if (++steps_ > kMaxSteps) return nullptr;
    if (std::find(node.output().begin(), node.output().end(), name) != node.output().end()) return &node;
  }
  return nullptr;
}

Importer::BagLoop::MaybeLane Importer::BagLoop::Eval(const std::string& name, Body& body) {
  if (const auto known = body.lanes.find(name); known != body.lanes.end()) return known->second;
  // The same in every iteration.
  if (const auto known = body.scope.names.find(name); known != body.scope.names.end())
    return known->second.tensor == kNoValue ? MaybeLane() : Lane{.kind = Kind::kSame, .id = known->second.tensor};
  if (const onnx::NodeProto* node = Producer(name, *body.graph)) {
    if (depth_ == kDeepest) return std::nullopt;
    ++depth_;
    MaybeLane made = EvalNode(*node, body);
    --depth_;
    return body.lanes.try_emplace(name, std::move(made)).first->second;
  }
  if (steps_ > kMaxSteps) return std::nullopt;
  if (body.outer != nullptr) return Eval(name, *body.outer);
  const Binding* binding = i_.Find(name, body.scope);
  if (binding == nullptr || binding->tensor == kNoValue) return std::nullopt;
  return Lane{.kind = Kind::kSame, .id = binding->tensor};
}

std::optional<std::vector<int64_t>> Importer::BagLoop::Numbers(const Lane& lane) {
  if (lane.kind == Kind::kNumbers) return lane.numbers;
  const Tensor* data = Constant(lane);
  if (data == nullptr || data->elements() != 1 || (!IsInteger(data->dtype()) && data->dtype() != DType::kBool)) return std::nullopt;
  return std::vector<int64_t>(static_cast<size_t>(trips_), ElementAsInt(data->view(), 0));
}

Importer::BagLoop::MaybeLane Importer::BagLoop::EvalNode(const onnx::NodeProto& node, Body& body) {
  if (!IsStandardDomain(node.domain())) return std::nullopt;
  const std::string& op = node.op_type();
  if (op == "Constant") {
    i_.RunConstant(node, body.scope);
    return Lane{.kind = Kind::kSame, .id = body.scope.names.at(node.output(0)).tensor};
  }
  if (op == "If") return EvalIf(node, body);
  if (op == "Loop") return EvalKept(node, body);
  if (MaybeLane same = EvalConstant(node, body)) return same;
  if (node.input_size() == 0 || node.output_size() != 1 || node.input(0).empty()) return std::nullopt;
  const MaybeLane first = Eval(node.input(0), body);
  if (!first || op == "Identity") return first;
  const auto is = [&](Kind kind) { return first->kind == kind; };
  if (op == "Slice") return EvalSlice(node, body, *first);
  if (op.starts_with("Reduce")) return EvalReduced(node, body, *first);
  if (op == "Size" && is(Kind::kKept)) return Lane{.kind = Kind::kCount, .id = first->id};
  if (op == "Not" && is(Kind::kElement) && TypeOf(first->id) == DType::kBool)
    return Lane{.kind = Kind::kElement, .id = Emit("Not", {first->id})};
  if (op == "Cast" || op == "CastLike" || op == "Reshape" || op == "Unsqueeze" || op == "Squeeze") {
    // A single number stays the same under any change of shape and type.
    if (const auto numbers = Numbers(*first)) return Lane{.kind = Kind::kNumbers, .numbers = *numbers};
    if (IsDataDependent(*first) || (is(Kind::kPlace) && op == "Reshape")) return first;
    if (op == "Unsqueeze" && is(Kind::kPart)) {
      auto axes = Axes(node, 1, body);
      if (!axes || axes->size() != 1 || axes->at(0) < 1 || first->kept != kNoValue) return std::nullopt;
      return Lane{.kind = Kind::kPart, .id = Emit("Unsqueeze", {first->id, Ints({axes->at(0) + (cuts_ == kNoValue ? 1 : 0)})})};
    }
    return std::nullopt;
  }
  if (node.input_size() < 2) return std::nullopt;
  const MaybeLane second = Eval(node.input(1), body);
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

bool Importer::RunBags(const LoopParts& parts, const std::string& origin, const Scope& scope, std::vector<Binding>& results) {
  if (!frames_.empty()) return false;
  BatchObserver* watch = emitter_.batch_observer();
  BagNumbers own;
  BagNumbers* numbers = watch == nullptr ? &own : watch->NextLoop();
  if (numbers == nullptr) return false;
  std::optional<std::vector<Binding>> made = BagLoop(*this, parts, origin, scope, *numbers).Run();
  numbers->bags = made.has_value();
  if (made) results = std::move(*made);
  return made.has_value();
}

}  // namespace gradloom

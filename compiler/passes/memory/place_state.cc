#include "compiler/passes/memory/place_state.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/passes/loss/loss_scale.h"
#include "compiler/passes/update/accumulate.h"
#include "runtime/base/checked.h"
#include "runtime/plan/average_state.h"

namespace gradloom {
namespace {

constexpr std::string_view kStepParams[] = {kStepLr, kStepLr64, kStepNumber, kStepBatch, kStepSeed, kStepFirst};

bool IsStepParam(const Value& value) {
  return std::find(std::begin(kStepParams), std::end(kStepParams), value.name) != std::end(kStepParams);
}

// The parameter that a state belongs to; kNoValue if it belongs to none.
ValueId ParameterOf(const Value& value) {
  if (value.rounded_of != kNoValue) return value.rounded_of;
  if (value.averages != kNoValue) return value.averages;
  return value.optimizes != kNoValue ? value.optimizes : value.accumulates;
}

// Returns, by value id, whether a node reads the value or it can be fetched.
std::vector<bool> Used(const Graph& graph) {
  std::vector<bool> used(static_cast<size_t>(graph.num_values()));
  for (const Node& node : graph.nodes) {
    ForEachUse(node, [&](ValueId id) { used[static_cast<size_t>(id)] = true; });
  }
  for (ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) used[static_cast<size_t>(value.next_of)] = true;
  }
  for (const Value& value : graph.values()) {
    const ValueId parameter = ParameterOf(value);
    if (parameter != kNoValue && used[static_cast<size_t>(value.id)]) used[static_cast<size_t>(parameter)] = true;
  }
  return used;
}

StateKind KindOf(const Value& value) {
  if (value.role == Role::kParam) return StateKind::kParameter;
  if (value.averages != kNoValue) return StateKind::kAverage;
  if (value.rounded_of != kNoValue) return StateKind::kWeightCopy;
  if (value.name == kLossScaleState || value.name == kGoodUpdatesState || value.name == kSkippedUpdatesState) return StateKind::kLossScale;
  if (value.name == kAccumulatedWeightState) return StateKind::kAccumulator;
  if (value.optimizes != kNoValue) return StateKind::kOptimizer;
  return value.accumulates != kNoValue ? StateKind::kAccumulator : StateKind::kStatistic;
}

std::vector<int> HoldersOf(const StateHolders& holders, const std::string& name) {
  const auto found = holders.find(name);
  return found == holders.end() ? std::vector<int>() : found->second;
}

// The tensor with which a state is kept: a copy with its parameter.
const std::string& OwnerOf(const Graph& graph, const Value& value) {
  return value.rounded_of == kNoValue ? value.name : graph.value(value.rounded_of).name;
}

// Places the tensor at the same offset in all places that hold it, after everything that they hold already. `known`: the plan's states by
// name.
void PlaceState(const Graph& graph, const Value& value, const Layout& layout, const std::vector<int>& places,
                std::map<std::string, int>& known, Plan& plan) {
  const auto [found, fresh] = known.emplace(StateName(value), static_cast<int>(plan.state.size()));
  if (!fresh) {
    const StateTensor& state = plan.state[static_cast<size_t>(found->second)];
    GRADLOOM_CHECK(state.dtype == value.dtype && state.shape == value.shape && state.layout == layout && state.partial == value.partial);
    return;
  }
  GRADLOOM_CHECK(!value.averaged);  // only an average that the plan has can be read
  StateTensor state;
  state.name = value.name;
  state.kind = KindOf(value);
  state.dtype = value.dtype;
  state.shape = value.shape;
  state.layout = layout;
  state.partial = value.partial;
  state.bytes = layout.elements(value.shape) * DTypeBytes(value.dtype);
  state.places = places;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    if (state.in_place(static_cast<int>(i))) state.offset = std::max(state.offset, plan.places[i].state_bytes);
  }
  if (const ValueId parameter = ParameterOf(value); parameter != kNoValue) state.parameter = known.at(graph.value(parameter).name);
  const Tensor* const initial = graph.data(value.id);
  if (initial != nullptr && state.kind != StateKind::kAverage) state.initial = *initial;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    if (state.in_place(static_cast<int>(i))) plan.places[i].state_bytes = AlignUp(state.offset + state.bytes, kAlignmentBytes);
  }
  plan.state.push_back(std::move(state));
}

// Whether the constant equals this tensor and fits into the place: at its own offset, or because it is at the end of the place's arena.
bool Hold(Constant& constant, const Tensor& data, int place, Plan& plan) {
  if (!SameTensor(constant.value, data)) return false;
  if (constant.in_place(place)) return true;
  int64_t& bytes = plan.places[static_cast<size_t>(place)].constants_bytes;
  if (constant.offset < bytes) return false;
  bytes = AlignUp(constant.offset + data.bytes(), kAlignmentBytes);
  constant.places.insert(std::upper_bound(constant.places.begin(), constant.places.end(), place), place);
  return true;
}

void PlaceStepParam(const Value& value, StepLayout& step) {
  int64_t& offset = value.name == kStepLr       ? step.lr
                    : value.name == kStepLr64   ? step.lr64
                    : value.name == kStepNumber ? step.step
                    : value.name == kStepBatch  ? step.batch
                    : value.name == kStepSeed   ? step.seed
                                                : step.first;
  if (offset >= 0) return;
  offset = step.bytes;
  step.bytes += kAlignmentBytes;
}

}  // namespace

std::string StateName(const Value& value) { return value.averaged ? AverageOf(value.name) : value.name; }

std::vector<ValueId> FeedsOf(const Graph& graph) {
  std::vector<ValueId> feeds;
  for (ValueId id : graph.inputs) {
    if (!IsStepParam(graph.value(id))) feeds.push_back(id);
  }
  return feeds;
}

void PlaceStateAndConstants(Graph& graph, const ProgramPlan& scheduled, const StateHolders& holders, Plan& plan) {
  const std::vector<bool> used = Used(graph);
  for (ValueId id : graph.inputs) {
    if (IsStepParam(graph.value(id)) && used[static_cast<size_t>(id)]) PlaceStepParam(graph.value(id), plan.step);
  }
  // Parameters first, because optimizer states refer to them.
  std::map<std::string, int> states;
  for (size_t i = 0; i < plan.state.size(); ++i) states.emplace(plan.state[i].name, static_cast<int>(i));
  for (Role role : {Role::kParam, Role::kState}) {
    for (const Value& value : graph.values()) {
      if (value.role == role && value.next_of == kNoValue && used[static_cast<size_t>(value.id)])
        PlaceState(graph, value, scheduled.layout(value.id), HoldersOf(holders, OwnerOf(graph, value)), states, plan);
    }
  }
  std::map<std::string, int> known;
  for (size_t i = 0; i < plan.constants.size(); ++i) known.emplace(plan.constants[i].name, static_cast<int>(i));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    Value& value = graph.value(id);
    if (value.role != Role::kConst || !used[static_cast<size_t>(id)]) continue;
    const Tensor& data = *graph.data(id);
    // Entries with other batch sizes may have a constant of the same name with other bytes, and another place may have no room at the same
    // offset.
    std::string name = value.name;
    for (int n = 1; known.contains(name) && !Hold(plan.constants[static_cast<size_t>(known.at(name))], data, scheduled.place, plan); ++n) {
      name = value.name + "@" + std::to_string(n);
    }
    value.name = name;
    if (known.contains(name)) continue;
    known.emplace(name, static_cast<int>(plan.constants.size()));
    int64_t& bytes = plan.places[static_cast<size_t>(scheduled.place)].constants_bytes;
    plan.constants.push_back({name, bytes, data, {}});
    if (plan.places.size() > 1) plan.constants.back().places = {scheduled.place};
    bytes = AlignUp(bytes + data.bytes(), kAlignmentBytes);
  }
}

}  // namespace gradloom

#include "compiler/passes/emit_program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr std::string_view kStepParams[] = {kStepLr, kStepNumber, kStepBatch, kStepSeed};

bool IsStepParam(const Value& value) {
  return std::find(std::begin(kStepParams), std::end(kStepParams), value.name) != std::end(kStepParams);
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

// Whether a node reads the value or it can be fetched; by value id.
std::vector<bool> Used(const Graph& graph) {
  std::vector<bool> used(static_cast<size_t>(graph.num_values()));
  for (const Node& node : graph.nodes) {
    ForEachUse(node, [&](ValueId id) { used[static_cast<size_t>(id)] = true; });
  }
  for (ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
  for (const Value& value : graph.values()) {
    if (value.next_of != kNoValue) used[static_cast<size_t>(value.next_of)] = true;
  }
  return used;
}

StateKind KindOf(const Value& value, const std::map<std::string, int>& parameters) {
  if (value.role == Role::kParam) return StateKind::kParameter;
  const size_t slash = value.name.rfind('/');
  if (slash == std::string::npos || !parameters.contains(value.name.substr(0, slash))) return StateKind::kStatistic;
  return value.name.ends_with("/grad_sum") ? StateKind::kAccumulator : StateKind::kOptimizer;
}

void PlaceState(const Graph& graph, const Value& value, const Layout& layout, const std::map<std::string, int>& parameters, Plan& plan) {
  const int known = plan.FindState(value.name);
  if (known >= 0) {
    const StateTensor& state = plan.state[static_cast<size_t>(known)];
    GRADLOOM_CHECK(state.dtype == value.dtype && state.shape == value.shape && state.layout == layout);
    return;
  }
  StateTensor state;
  state.name = value.name;
  state.kind = KindOf(value, parameters);
  state.dtype = value.dtype;
  state.shape = value.shape;
  state.layout = layout;
  state.bytes = layout.elements(value.shape) * DTypeBytes(value.dtype);
  state.offset = plan.state_bytes;
  if (state.kind == StateKind::kOptimizer || state.kind == StateKind::kAccumulator) {
    state.parameter = parameters.at(value.name.substr(0, value.name.rfind('/')));
  }
  if (const Tensor* initial = graph.data(value.id)) state.initial = *initial;
  plan.state_bytes = AlignUp(plan.state_bytes + state.bytes, kAlignmentBytes);
  plan.state.push_back(std::move(state));
}

void PlaceStepParam(const Value& value, StepLayout& step) {
  int64_t& offset = value.name == kStepLr       ? step.lr
                    : value.name == kStepNumber ? step.step
                    : value.name == kStepBatch  ? step.batch
                                                : step.seed;
  if (offset >= 0) return;
  offset = step.bytes;
  step.bytes += kAlignmentBytes;
}

}  // namespace

std::vector<ValueId> FeedsOf(const Graph& graph) {
  std::vector<ValueId> feeds;
  for (ValueId id : graph.inputs) {
    if (!IsStepParam(graph.value(id))) feeds.push_back(id);
  }
  return feeds;
}

void PlaceStateAndConstants(Graph& graph, const ProgramPlan& scheduled, Plan& plan) {
  const std::vector<bool> used = Used(graph);
  for (ValueId id : graph.inputs) {
    if (IsStepParam(graph.value(id)) && used[static_cast<size_t>(id)]) PlaceStepParam(graph.value(id), plan.step);
  }
  // Parameters first: optimizer states refer to them.
  for (Role role : {Role::kParam, Role::kState}) {
    std::map<std::string, int> parameters;
    for (size_t i = 0; i < plan.state.size(); ++i) {
      if (plan.state[i].kind == StateKind::kParameter) parameters.emplace(plan.state[i].name, static_cast<int>(i));
    }
    for (const Value& value : graph.values()) {
      if (value.role == role && value.next_of == kNoValue && used[static_cast<size_t>(value.id)])
        PlaceState(graph, value, scheduled.layout(value.id), parameters, plan);
    }
  }
  std::map<std::string, int> known;
  for (size_t i = 0; i < plan.constants.size(); ++i) known.emplace(plan.constants[i].name, static_cast<int>(i));
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    Value& value = graph.value(id);
    if (value.role != Role::kConst || !used[static_cast<size_t>(id)]) continue;
    const Tensor& data = *graph.data(id);
    // Entries of other batch sizes make constants of the same name with other bytes.
    std::string name = value.name;
    for (int n = 1; known.contains(name) && !SameTensor(plan.constants[static_cast<size_t>(known.at(name))].value, data); ++n) {
      name = value.name + "@" + std::to_string(n);
    }
    value.name = name;
    if (known.contains(name)) continue;
    known.emplace(name, static_cast<int>(plan.constants.size()));
    plan.constants.push_back({name, plan.constants_bytes, data});
    plan.constants_bytes = AlignUp(plan.constants_bytes + data.bytes(), kAlignmentBytes);
  }
}

Program EmitProgram(const Graph& graph, const ProgramPlan& scheduled, std::vector<int>& output_buffers) {
  Program program;
  program.streams.push_back({StreamKind::kCompute, 0, scheduled.threads});
  program.transient_bytes = scheduled.transient_bytes;

  // By value id: the value whose bytes a view shows, at the end of a chain of views.
  std::vector<ValueId> viewed(static_cast<size_t>(graph.num_values()));
  std::iota(viewed.begin(), viewed.end(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (scheduled.kernels[i].row == nullptr) {
      viewed[static_cast<size_t>(node.outputs[0])] = viewed[static_cast<size_t>(node.inputs[0])];
    }
  }
  std::vector<int> buffer_of(static_cast<size_t>(graph.num_values()), -1);
  const std::function<int(ValueId)> buffer = [&](ValueId id) {
    if (id == kNoValue) return -1;
    int& index = buffer_of[static_cast<size_t>(id)];
    if (index < 0) {
      const ValueId whole = viewed[static_cast<size_t>(id)];
      const int whole_index = whole == id ? -1 : buffer(whole);
      const Value& value = graph.value(id);
      const Placement& place = scheduled.placement[static_cast<size_t>(id)];
      index = static_cast<int>(program.buffers.size());
      program.buffers.push_back({.name = value.name,
                                 .arena = place.arena,
                                 .offset = place.offset,
                                 .bytes = scheduled.layout(id).elements(value.shape) * DTypeBytes(value.dtype),
                                 .dtype = value.dtype,
                                 .shape = value.shape,
                                 .layout = scheduled.layout(id),
                                 .feed = place.feed,
                                 .whole = whole_index});
    }
    return index;
  };

  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const KernelChoice& choice = scheduled.kernels[i];
    if (choice.row == nullptr) continue;
    Instruction launch;
    launch.kernel = choice.row->name;
    launch.op = node.op;
    launch.domain = node.domain;
    launch.attributes = node.attributes;
    launch.origin = node.origin;
    for (ValueId id : node.inputs) launch.uses.push_back({buffer(id), Access::kRead});
    for (ValueId id : node.outputs) launch.uses.push_back({buffer(id), Access::kWrite});
    if (choice.scratch_bytes > 0) {
      launch.uses.push_back({static_cast<int>(program.buffers.size()), Access::kScratch});
      program.buffers.push_back({.name = "scratch",
                                 .arena = Arena::kTransient,
                                 .offset = scheduled.scratch_offset[i],
                                 .bytes = choice.scratch_bytes,
                                 .dtype = DType::kUndefined,
                                 .shape = {},
                                 .layout = {},
                                 .feed = -1});
    }
    program.instructions.push_back(std::move(launch));
  }
  for (const StateCopy& copy : scheduled.copies) {
    Instruction instruction;
    instruction.kind = InstructionKind::kCopy;
    // The state's new value is not its old one: another buffer at the same place.
    Buffer next = program.buffers[static_cast<size_t>(buffer(copy.from))];
    const Placement& place = scheduled.placement[static_cast<size_t>(copy.to)];
    next.arena = place.arena;
    next.offset = place.offset;
    next.whole = -1;
    instruction.uses = {{buffer(copy.from), Access::kRead}, {static_cast<int>(program.buffers.size()), Access::kWrite}};
    program.buffers.push_back(std::move(next));
    program.instructions.push_back(std::move(instruction));
  }
  output_buffers.clear();
  for (ValueId id : graph.outputs) output_buffers.push_back(buffer(id));
  return program;
}

}  // namespace gradloom

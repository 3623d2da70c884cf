#include "compiler/passes/emit_program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/passes/node_order.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr std::string_view kStepParams[] = {kStepLr, kStepNumber, kStepBatch, kStepSeed, kStepFirst};

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
                    : value.name == kStepSeed   ? step.seed
                                                : step.first;
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

namespace {

class Emitter {
 public:
  Emitter(const Graph& graph, const ProgramPlan& scheduled)
      : graph_(graph), scheduled_(scheduled), buffer_of_(static_cast<size_t>(graph.num_values()), -1) {
    for (int s = 0; s < std::max(scheduled.streams, 1); ++s) {
      const bool comm = s == scheduled.comm_stream;
      program_.streams.push_back({comm ? StreamKind::kComm : StreamKind::kCompute, 0, comm ? 1 : scheduled.threads});
    }
    program_.transient_bytes = scheduled.transient_bytes;
    FindViews();
  }

  Program Run(std::vector<int>& output_buffers) {
    std::vector<std::vector<int>> waits(graph_.nodes.size());
    std::vector<bool> waited_for(graph_.nodes.size());
    for (const Wait& wait : scheduled_.waits) {
      waits[static_cast<size_t>(wait.node)].push_back(wait.after);
      waited_for[static_cast<size_t>(wait.after)] = true;
    }
    std::map<int, int> event_of;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsView(graph_.nodes[i])) continue;
      const int stream = i < scheduled_.stream.size() ? scheduled_.stream[i] : 0;
      for (int before : waits[i]) Signal(InstructionKind::kWait, stream, event_of.at(before));
      IsMeeting(graph_.nodes[i]) ? Meet(i, stream) : Launch(i, stream);
      if (!waited_for[i]) continue;
      event_of.emplace(static_cast<int>(i), program_.num_events);
      Signal(InstructionKind::kRecord, stream, program_.num_events++);
    }
    CopyStates();
    output_buffers.clear();
    for (ValueId id : graph_.outputs) output_buffers.push_back(BufferOf(id));
    return std::move(program_);
  }

 private:
  // By value id: the value whose bytes a view shows, at the end of a chain of views.
  void FindViews() {
    viewed_.resize(static_cast<size_t>(graph_.num_values()));
    std::iota(viewed_.begin(), viewed_.end(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (IsView(node)) {
        viewed_[static_cast<size_t>(node.outputs[0])] = viewed_[static_cast<size_t>(node.inputs[0])];
      }
    }
  }

  int BufferOf(ValueId id) {
    if (id == kNoValue) return -1;
    if (buffer_of_[static_cast<size_t>(id)] >= 0) return buffer_of_[static_cast<size_t>(id)];
    const ValueId whole = viewed_[static_cast<size_t>(id)];
    const int whole_index = whole == id ? -1 : BufferOf(whole);
    const Value& value = graph_.value(id);
    const Placement& place = scheduled_.placement[static_cast<size_t>(id)];
    program_.buffers.push_back({.name = value.name,
                                .arena = place.arena,
                                .offset = place.offset,
                                .bytes = scheduled_.layout(id).elements(value.shape) * DTypeBytes(value.dtype),
                                .dtype = value.dtype,
                                .shape = value.shape,
                                .layout = scheduled_.layout(id),
                                .feed = place.feed,
                                .whole = whole_index});
    return buffer_of_[static_cast<size_t>(id)] = static_cast<int>(program_.buffers.size()) - 1;
  }

  void Signal(InstructionKind kind, int stream, int event) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.stream = stream;
    instruction.event = event;
    program_.instructions.push_back(std::move(instruction));
  }

  void Launch(size_t i, int stream) {
    const Node& node = graph_.nodes[i];
    const KernelChoice& choice = scheduled_.kernels[i];
    Instruction launch;
    launch.stream = stream;
    launch.kernel = choice.row->name;
    launch.op = node.op;
    launch.domain = node.domain;
    launch.attributes = node.attributes;
    launch.origin = node.origin;
    for (ValueId id : node.inputs) launch.uses.push_back({BufferOf(id), Access::kRead});
    for (ValueId id : node.outputs) launch.uses.push_back({BufferOf(id), Access::kWrite});
    if (choice.scratch_bytes > 0) {
      launch.uses.push_back({static_cast<int>(program_.buffers.size()), Access::kScratch});
      program_.buffers.push_back({.name = "scratch",
                                  .arena = Arena::kTransient,
                                  .offset = scheduled_.scratch_offset[i],
                                  .bytes = choice.scratch_bytes,
                                  .dtype = DType::kUndefined,
                                  .shape = {},
                                  .layout = {},
                                  .feed = -1});
    }
    program_.instructions.push_back(std::move(launch));
  }

  void Meet(size_t i, int stream) {
    const Node& node = graph_.nodes[i];
    Instruction meeting;
    meeting.kind = InstructionKind::kCollective;
    meeting.stream = stream;
    meeting.collective = Collective::kAllReduceSum;
    meeting.group = 0;
    meeting.origin = node.origin;
    for (ValueId id : node.inputs) meeting.uses.push_back({BufferOf(id), Access::kRead});
    for (ValueId id : node.outputs) meeting.uses.push_back({BufferOf(id), Access::kWrite});
    program_.instructions.push_back(std::move(meeting));
  }

  // On the first stream, when all others have ended.
  void CopyStates() {
    if (scheduled_.copies.empty()) return;
    for (int s = 1; s < static_cast<int>(program_.streams.size()); ++s) {
      Signal(InstructionKind::kRecord, s, program_.num_events);
      Signal(InstructionKind::kWait, 0, program_.num_events++);
    }
    for (const StateCopy& copy : scheduled_.copies) {
      Instruction instruction;
      instruction.kind = InstructionKind::kCopy;
      // The state's new value is not its old one: another buffer at the same place.
      Buffer next = program_.buffers[static_cast<size_t>(BufferOf(copy.from))];
      const Placement& place = scheduled_.placement[static_cast<size_t>(copy.to)];
      next.arena = place.arena;
      next.offset = place.offset;
      next.whole = -1;
      instruction.uses = {{BufferOf(copy.from), Access::kRead}, {static_cast<int>(program_.buffers.size()), Access::kWrite}};
      program_.buffers.push_back(std::move(next));
      program_.instructions.push_back(std::move(instruction));
    }
  }

  const Graph& graph_;
  const ProgramPlan& scheduled_;
  Program program_;
  std::vector<ValueId> viewed_;
  std::vector<int> buffer_of_;  // by value id
};

}  // namespace

Program EmitProgram(const Graph& graph, const ProgramPlan& scheduled, std::vector<int>& output_buffers) {
  return Emitter(graph, scheduled).Run(output_buffers);
}

}  // namespace gradloom

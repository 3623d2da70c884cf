#include "compiler/passes/schedule/emit_program.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {
namespace {

// The context in which a body is emitted.
struct BodyContext {
  int place = 0;
  std::vector<Buffer> operands;  // operands of its node: the inputs after the first, then the outputs
  int64_t scratch_offset = 0;
  PlanPhase phase = PlanPhase::kNone;
};

class Emitter {
 public:
  // `around`: null for a program that is not a body.
  Emitter(const Graph& graph, const ProgramPlan& scheduled, const BodyContext* around)
      : graph_(graph),
        scheduled_(scheduled),
        around_(around),
        buffer_of_(static_cast<size_t>(graph.num_values()), -1),
        phase_of_(buffer_of_.size(), PlanPhase::kNone) {
    for (int s = 0; s < std::max(scheduled.streams, 1); ++s) {
      const StreamKind kind = s == scheduled.comm_stream   ? StreamKind::kComm
                              : s == scheduled.copy_stream ? StreamKind::kCopy
                                                           : StreamKind::kCompute;
      program_.streams.push_back({kind, 0, kind == StreamKind::kCompute ? scheduled.threads : 1});
    }
    program_.transient_bytes = around == nullptr ? scheduled.transient_bytes : 0;
    program_.input_bytes = scheduled.input_bytes;
    program_.place = around == nullptr ? scheduled.place : around->place;
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
      if (IsInputCopy(graph_.nodes[i])) {
        Copy(graph_.nodes[i], stream);
      } else if (!graph_.nodes[i].regions.empty()) {
        Decide(i, stream);
      } else {
        IsCollective(graph_.nodes[i]) ? Communicate(graph_.nodes[i], stream) : Launch(i, stream);
      }
      program_.instructions.back().phase = PhaseOf(graph_.nodes[i]);
      for (ValueId id : graph_.nodes[i].outputs) {
        if (id != kNoValue) phase_of_[static_cast<size_t>(id)] = program_.instructions.back().phase;
      }
      if (!waited_for[i]) continue;
      event_of.emplace(static_cast<int>(i), program_.num_events);
      Signal(InstructionKind::kRecord, stream, program_.num_events++);
    }
    CopyStates();
    output_buffers.clear();
    if (around_ == nullptr) {
      for (ValueId id : graph_.outputs) output_buffers.push_back(BufferOf(id));
    }
    return std::move(program_);
  }

 private:
  static PlanPhase Noted(Phase phase) {
    switch (phase) {
      case Phase::kForward: return PlanPhase::kForward;
      case Phase::kBackward: return PlanPhase::kBackward;
      case Phase::kUpdate: return PlanPhase::kUpdate;
      case Phase::kCopy: return PlanPhase::kNone;
    }
    return PlanPhase::kNone;
  }

  // The node's phase, or a later one if it reads values of that. Where a file describes its own training, only the data tells.
  PlanPhase PhaseOf(const Node& node) const {
    if (around_ != nullptr) return around_->phase;
    PlanPhase phase = Noted(node.phase);
    if (phase == PlanPhase::kNone) return phase;
    for (ValueId id : node.outputs) {
      const ValueId old = id == kNoValue ? kNoValue : graph_.value(id).next_of;
      if (old != kNoValue && graph_.value(old).role == Role::kParam) return PlanPhase::kUpdate;
    }
    ForEachUse(node, [&](ValueId id) { phase = std::max(phase, phase_of_[static_cast<size_t>(viewed_[static_cast<size_t>(id)])]); });
    return phase;
  }

  // Finds, by value id, the value whose bytes a view shows, at the end of a chain of views.
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
    Buffer buffer{.name = StateName(value),
                  .bytes = scheduled_.layout(id).elements(value.shape) * DTypeBytes(value.dtype),
                  .dtype = value.dtype,
                  .shape = value.shape,
                  .layout = scheduled_.layout(id),
                  .whole = whole_index};
    Place(scheduled_.placement[static_cast<size_t>(id)], buffer);
    program_.buffers.push_back(std::move(buffer));
    return buffer_of_[static_cast<size_t>(id)] = static_cast<int>(program_.buffers.size()) - 1;
  }

  void Place(const Placement& place, Buffer& buffer) const {
    buffer.arena = place.arena;
    buffer.offset = place.offset;
    buffer.feed = place.feed;
    if (around_ == nullptr) return;
    if (place.arena == Arena::kTransient) {
      buffer.offset += around_->scratch_offset;
      return;
    }
    const Buffer& operand = around_->operands[static_cast<size_t>(place.feed)];
    buffer.name = operand.name;
    buffer.arena = operand.arena;
    buffer.offset = operand.offset;
    buffer.feed = operand.feed;
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
    AddScratch(i, launch);
    program_.instructions.push_back(std::move(launch));
  }

  void AddScratch(size_t i, Instruction& instruction) {
    if (scheduled_.kernels[i].scratch_bytes == 0) return;
    Buffer scratch{.name = "scratch", .bytes = scheduled_.kernels[i].scratch_bytes, .dtype = DType::kUndefined};
    Place({Arena::kTransient, scheduled_.scratch_offset[i], -1}, scratch);
    instruction.uses.push_back({static_cast<int>(program_.buffers.size()), Access::kScratch});
    program_.buffers.push_back(std::move(scratch));
  }

  // Emits a branch or a loop with its bodies.
  void Decide(size_t i, int stream) {
    const Node& node = graph_.nodes[i];
    const bool loop = node.op == "Loop";
    Instruction decision;
    decision.kind = loop ? InstructionKind::kLoop : InstructionKind::kIf;
    decision.stream = stream;
    decision.origin = node.origin;
    decision.uses.push_back({BufferOf(node.inputs[0]), Access::kRead});
    if (loop) {
      decision.trip_bound = node.attributes.Int("trip_bound", 0);
      const bool conditional = node.attributes.Int("conditional", 0) != 0;
      decision.uses.push_back({conditional ? BufferOf(node.inputs[1]) : -1, Access::kRead});
    }
    BodyContext around{.place = program_.place,
                       .operands = {},
                       .scratch_offset = scheduled_.scratch_offset[i] + (around_ == nullptr ? 0 : around_->scratch_offset),
                       .phase = PhaseOf(node)};
    const auto add = [&](ValueId id, Access access) {
      const int buffer = BufferOf(id);
      decision.uses.push_back({buffer, access});
      Buffer& operand = around.operands.emplace_back(program_.buffers[static_cast<size_t>(buffer)]);
      // In a body, a view of a state or constant of the plan is that tensor itself, with the view's shape.
      const bool given = operand.arena == Arena::kState || operand.arena == Arena::kConstants;
      if (given && operand.whole >= 0) operand.name = program_.buffers[static_cast<size_t>(operand.whole)].name;
    };
    for (size_t k = 1; k < node.inputs.size(); ++k) add(node.inputs[k], Access::kRead);
    for (ValueId id : node.outputs) add(id, Access::kWrite);
    AddScratch(i, decision);
    for (size_t r = 0; r < node.regions.size(); ++r) {
      std::vector<int> outputs;
      decision.bodies.push_back(Emitter(*node.regions[r].body, scheduled_.bodies[i][r], &around).Run(outputs));
    }
    program_.instructions.push_back(std::move(decision));
  }

  void Copy(const Node& node, int stream) {
    Instruction copy;
    copy.kind = InstructionKind::kCopy;
    copy.stream = stream;
    copy.uses = {{BufferOf(node.inputs[0]), Access::kRead}, {BufferOf(node.outputs[0]), Access::kWrite}};
    copy.origin = node.origin;
    program_.instructions.push_back(std::move(copy));
  }

  // Collectives use the rank's first group; transfers use the peer slots that the nodes name.
  void Communicate(const Node& node, int stream) {
    Instruction communication;
    communication.kind = node.op == "Send"   ? InstructionKind::kSend
                         : node.op == "Recv" ? InstructionKind::kRecv
                                             : InstructionKind::kCollective;
    communication.stream = stream;
    if (communication.kind == InstructionKind::kCollective) {
      communication.group = 0;
      communication.collective = IsBroadcast(node) ? Collective::kBroadcast
                                 : IsReduce(node)  ? Collective::kReduceSum
                                                   : Collective::kAllReduceSum;
      communication.root = static_cast<int>(node.attributes.Int("root", 0));
      if (IsReduce(node)) {
        for (int64_t root : node.attributes.Ints("roots")) communication.roots.push_back(static_cast<int>(root));
      }
    } else {
      communication.peer = static_cast<int>(node.attributes.Int("peer", 0));
    }
    communication.tag = static_cast<int>(node.attributes.Int("tag", 0));
    communication.origin = node.origin;
    for (ValueId id : node.inputs) communication.uses.push_back({BufferOf(id), Access::kRead});
    for (ValueId id : node.outputs) communication.uses.push_back({BufferOf(id), Access::kWrite});
    program_.instructions.push_back(std::move(communication));
  }

  // Copies states on the first stream, after all other streams have ended.
  void CopyStates() {
    if (scheduled_.copies.empty()) return;
    for (int s = 1; s < static_cast<int>(program_.streams.size()); ++s) {
      Signal(InstructionKind::kRecord, s, program_.num_events);
      Signal(InstructionKind::kWait, 0, program_.num_events++);
    }
    for (const StateCopy& copy : scheduled_.copies) {
      Instruction instruction;
      instruction.kind = InstructionKind::kCopy;
      instruction.phase = around_ != nullptr ? around_->phase : PlanPhase::kUpdate;
      // The state's new value is a different buffer at the same address.
      Buffer next = program_.buffers[static_cast<size_t>(BufferOf(copy.from))];
      Place(scheduled_.placement[static_cast<size_t>(copy.to)], next);
      next.whole = -1;
      instruction.uses = {{BufferOf(copy.from), Access::kRead}, {static_cast<int>(program_.buffers.size()), Access::kWrite}};
      program_.buffers.push_back(std::move(next));
      program_.instructions.push_back(std::move(instruction));
    }
  }

  const Graph& graph_;
  const ProgramPlan& scheduled_;
  const BodyContext* around_;
  Program program_;
  std::vector<ValueId> viewed_;
  std::vector<int> buffer_of_;       // by value id
  std::vector<PlanPhase> phase_of_;  // by value id: of the instruction that computes it; none if it is given
};

}  // namespace

Program EmitProgram(const Graph& graph, const ProgramPlan& scheduled, std::vector<int>& output_buffers) {
  return Emitter(graph, scheduled, nullptr).Run(output_buffers);
}

}  // namespace gradloom

#include "compiler/onnx/export/scheduled_model.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/onnx/proto_convert.h"
#include "runtime/base/version.h"
#include "runtime/plan/text.h"

namespace gradloom {
namespace {

constexpr int kIrVersion = 10;  // has metadata of nodes
// With more devices, only those that run different programs are drawn.
constexpr size_t kMaxStageDevices = 16;

class Writer {
 public:
  Writer(const Plan& plan, const Entry& entry) : plan_(plan), entry_(entry) {
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("gradloom");
    model_.set_producer_version(kVersion);
    auto& standard = *model_.add_opset_import();
    standard.set_version(kOpset);
    auto& own = *model_.add_opset_import();
    own.set_domain(std::string(kGradloomDomain));
    own.set_version(1);
    model_.mutable_graph()->set_name(plan.model.name.empty() ? "plan" : plan.model.name);
  }

  std::string Run() {
    std::set<int> programs;
    for (size_t r = 0; r < entry_.ranks.size(); ++r) {
      if (programs.insert(entry_.ranks[r].program).second || r < kMaxStageDevices) drawn_.insert(static_cast<int>(r));
    }
    for (int rank : drawn_) AddProgram(rank);
    return model_.SerializeAsString();
  }

 private:
  onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  void AddProgram(int rank) {
    const RankBinding& binding = entry_.ranks[static_cast<size_t>(rank)];
    const Program& program = plan_.programs[static_cast<size_t>(binding.program)];
    const std::string prefix = "device" + std::to_string(rank) + "/";
    names_.clear();
    std::vector<bool> written(program.buffers.size());
    for (const Instruction& i : program.instructions) {
      for (const Use& use : i.uses) {
        if (use.access == Access::kWrite && use.buffer >= 0) written[static_cast<size_t>(use.buffer)] = true;
      }
    }
    std::map<int, std::string> waits;  // events that the next instruction waits for, by stream
    onnx::NodeProto* last = nullptr;
    std::map<int, onnx::NodeProto*> last_of;  // by stream
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const std::string event = std::to_string(instruction.event);
      if (instruction.kind == InstructionKind::kWait) {
        waits[instruction.stream] += (waits[instruction.stream].empty() ? "" : ",") + event;
        continue;
      }
      if (instruction.kind == InstructionKind::kRecord) {
        if (const auto at = last_of.find(instruction.stream); at != last_of.end()) Tell(*at->second, "records", event);
        continue;
      }
      last = &AddNode(program, prefix, rank, i, written);
      last_of[instruction.stream] = last;
      Tell(*last, "device", std::to_string(rank));
      if (!waits[instruction.stream].empty()) Tell(*last, "waits", std::exchange(waits[instruction.stream], ""));
    }
    AddFetches(program, rank, prefix);
  }

  static void Tell(onnx::NodeProto& node, const std::string& key, const std::string& value) {
    auto& entry = *node.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }

  static std::string OpOf(const Instruction& instruction) {
    switch (instruction.kind) {
      case InstructionKind::kLaunch: return instruction.op;
      case InstructionKind::kCopy: return "Copy";
      case InstructionKind::kCollective:
        return instruction.collective == Collective::kBroadcast   ? "Broadcast"
               : instruction.collective == Collective::kReduceSum ? "Reduce"
                                                                  : "AllReduce";
      case InstructionKind::kSend: return "Send";
      case InstructionKind::kRecv: return "Recv";
      case InstructionKind::kIf: return "If";
      case InstructionKind::kLoop: return "Loop";
      default: return "";
    }
  }

  onnx::NodeProto& AddNode(const Program& program, const std::string& prefix, int rank, size_t index, const std::vector<bool>& written) {
    const Instruction& instruction = program.instructions[index];
    onnx::NodeProto& node = *graph().add_node();
    node.set_name(prefix + "#" + std::to_string(index) + (instruction.origin.empty() ? "" : " " + instruction.origin));
    node.set_op_type(OpOf(instruction));
    node.set_domain(instruction.kind == InstructionKind::kLaunch ? instruction.domain : std::string(kGradloomDomain));
    for (const auto& [name, value] : instruction.attributes) SetAttribute(name, value, node.add_attribute());
    std::string place;
    for (const Use& use : instruction.uses) {
      if (use.access == Access::kScratch) continue;
      const std::string name = use.buffer < 0 ? "" : NameOf(program, prefix, use.buffer, written);
      (use.access == Access::kRead ? node.add_input(name) : node.add_output(name));
      if (use.access != Access::kWrite || use.buffer < 0) continue;
      const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
      place += (place.empty() ? "" : ", ") + ArenaName(buffer.arena) + " " + std::to_string(buffer.offset) + " to " +
               std::to_string(buffer.offset + buffer.bytes);
    }
    // A transferred value has the same name on both devices.
    if (instruction.kind == InstructionKind::kSend) node.add_output(PassedName(rank, instruction));
    if (instruction.kind == InstructionKind::kRecv) {
      node.add_input(PassedName(rank, instruction));
      const int peer = entry_.ranks[static_cast<size_t>(rank)].peers[static_cast<size_t>(instruction.peer)];
      if (!drawn_.contains(peer)) graph().add_input()->set_name(node.input(0));
    }
    Tell(node, "stream", std::to_string(instruction.stream));
    if (instruction.phase != PlanPhase::kNone) Tell(node, "phase", std::string(PhaseName(instruction.phase)));
    Tell(node, "instruction", std::to_string(index));
    if (!instruction.kernel.empty()) Tell(node, "kernel", instruction.kernel);
    if (!instruction.origin.empty()) Tell(node, "origin", instruction.origin);
    if (!place.empty()) Tell(node, "writes", place);
    return node;
  }

  // Named by the pair of ranks and the tag.
  std::string PassedName(int rank, const Instruction& instruction) const {
    const int peer = entry_.ranks[static_cast<size_t>(rank)].peers[static_cast<size_t>(instruction.peer)];
    const bool sends = instruction.kind == InstructionKind::kSend;
    return "from" + std::to_string(sends ? rank : peer) + "to" + std::to_string(sends ? peer : rank) + "/" +
           std::to_string(instruction.tag);
  }

  // A view has the name of the value that it shows; buffers that are never written are inputs of the graph.
  std::string NameOf(const Program& program, const std::string& prefix, int index, const std::vector<bool>& written) {
    const int whole = program.buffers[static_cast<size_t>(index)].whole;
    if (whole >= 0 && !written[static_cast<size_t>(index)]) return NameOf(program, prefix, whole, written);
    const auto [at, fresh] = names_.emplace(index, "");
    if (!fresh) return at->second;
    const Buffer& buffer = program.buffers[static_cast<size_t>(index)];
    at->second = prefix + (buffer.name.empty() ? "value" : buffer.name);
    if (!used_.insert(at->second).second) used_.insert(at->second += "%" + std::to_string(index));
    onnx::ValueInfoProto& info = *(written[static_cast<size_t>(index)] ? graph().add_value_info() : graph().add_input());
    info.set_name(at->second);
    SetTensorType({buffer.dtype, buffer.shape}, info.mutable_type());
    return at->second;
  }

  void AddFetches(const Program& program, int rank, const std::string& prefix) {
    std::set<std::string> added;
    for (size_t f = 0; f < entry_.fetches.size(); ++f) {
      const int index = FetchedBuffer(entry_, static_cast<size_t>(rank), f);
      const auto named = names_.find(
          index < 0 || program.buffers[static_cast<size_t>(index)].whole < 0 ? index : program.buffers[static_cast<size_t>(index)].whole);
      if (index < 0 || named == names_.end() || !added.insert(named->second).second) continue;
      onnx::ValueInfoProto& info = *graph().add_output();
      info.set_name(named->second);
      const Buffer& buffer = program.buffers[static_cast<size_t>(named->first)];
      SetTensorType({buffer.dtype, buffer.shape}, info.mutable_type());
    }
    if (!added.empty()) model_.set_doc_string(model_.doc_string() + prefix + " computes the fetched values\n");
  }

  const Plan& plan_;
  const Entry& entry_;
  onnx::ModelProto model_;
  std::map<int, std::string> names_;  // by buffer of the program
  std::set<std::string> used_;
  std::set<int> drawn_;  // by rank
};

}  // namespace

std::string ScheduledModel(const Plan& plan, int entry) { return Writer(plan, plan.entries[static_cast<size_t>(entry)]).Run(); }

}  // namespace gradloom

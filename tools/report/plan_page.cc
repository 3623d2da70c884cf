#include "tools/report/plan_page.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/cost/launch_work.h"
#include "runtime/base/error.h"
#include "runtime/plan/buffer_lives.h"
#include "runtime/plan/entry_names.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/text.h"
#include "tools/report/page_template.h"
#include "tools/report/schedule.h"
#include "tools/report/stream_tables.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxShownDevices = 16;
constexpr const char* kKinds[] = {"launch", "copy", "record", "wait", "collective", "send", "recv", "if", "loop"};

Json JsonOf(const Program& program, const Instruction& instruction) {
  Json reads = Json::array(), writes = Json::array();
  for (const Use& use : instruction.uses) {
    if (use.buffer >= 0) (use.access == Access::kRead ? reads : writes).push_back(use.buffer);
  }
  std::string name = instruction.kernel;
  if (instruction.kind == InstructionKind::kCollective) {
    name = InstructionName(instruction) + ", " + Bytes(BytesRead(program, instruction));
  } else if (Communicates(instruction)) {
    name = InstructionName(instruction);
  }
  return {{"kind", kKinds[static_cast<size_t>(instruction.kind)]},
          {"name", name},
          {"op", instruction.op},
          {"origin", instruction.origin},
          {"phase", PhaseName(instruction.phase)},
          {"stream", instruction.stream},
          {"reads", reads},
          {"writes", writes},
          {"event", instruction.event}};
}

Json JsonOf(const Program& program) {
  Json instructions = Json::array(), streams = Json::array(), buffers = Json::array();
  const std::vector<BufferLife> lives = LivesOf(program);
  for (const Instruction& instruction : program.instructions) instructions.push_back(JsonOf(program, instruction));
  for (size_t s = 0; s < program.streams.size(); ++s) streams.push_back(StreamName(program, s));
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const std::string type = buffer.dtype == DType::kUndefined ? "scratch" : std::string(DTypeName(buffer.dtype)) + buffer.shape.ToString();
    buffers.push_back({{"name", buffer.name},
                       {"arena", ArenaName(buffer.arena)},
                       {"offset", buffer.offset},
                       {"bytes", buffer.bytes},
                       {"type", type},
                       {"first", lives[i].first},
                       {"last", lives[i].last}});
  }
  return {{"instructions", instructions}, {"streams", streams}, {"buffers", buffers}, {"transient_bytes", program.transient_bytes}};
}

class PageData {
 public:
  PageData(const Plan& plan, const Entry& entry, const Simulation& simulation) : plan_(plan), entry_(entry), simulation_(simulation) {
    for (size_t i = 0; i < simulation.programs.size(); ++i) place_.emplace(simulation.programs[i].program, static_cast<int>(i));
  }

  Json Make(const std::string& title) {
    const MemoryReport memory = ReportMemory(plan_, 0);
    const PlaceMemory& most = memory.fullest();
    const size_t drawn = std::min(entry_.ranks.size(), kMaxShownDevices);
    Json data{{"title", title}};
    data["subtitle"] = EntryName(entry_) + " on " + std::to_string(entry_.ranks.size()) + " x " +
                       std::string(DeviceKindName(plan_.targets[0].device)) + "; predicted " + Milliseconds(simulation_.seconds);
    data["programs"] = Json::array();
    for (const SimulatedProgram& program : simulation_.programs) {
      data["programs"].push_back(JsonOf(plan_.programs[static_cast<size_t>(program.program)]));
    }
    data["devices"] = Json::array();
    data["arrows"] = Json::array();
    for (size_t rank = 0; rank < drawn; ++rank) AddDevice(static_cast<int>(rank), data);
    data["communications"] = Communications(drawn);
    data["critical"] = Json::array();
    for (const auto& [runner, instruction] : simulation_.critical) {
      const int program = simulation_.programs[static_cast<size_t>(runner)].program;
      for (size_t rank = 0; rank < drawn; ++rank) {
        if (entry_.ranks[rank].program != program) continue;
        data["critical"].push_back({rank, instruction});
        break;
      }
    }
    const SimulatedProgram& first = simulation_.programs.front();
    data["summary"] = Json::array({{"step (predicted)", Milliseconds(simulation_.seconds)},
                                   {"communication", Milliseconds(first.communication)},
                                   {"exposed communication", Milliseconds(first.exposed)},
                                   {"parameters", Bytes(most.parameters)},
                                   {"state and optimizer", Bytes(most.state_bytes)},
                                   {"arena per device", Bytes(plan_.programs[static_cast<size_t>(first.program)].transient_bytes)}});
    return data;
  }

 private:
  const SimulatedProgram& SimulatedOf(int rank) const {
    return simulation_.programs[static_cast<size_t>(place_.at(entry_.ranks[static_cast<size_t>(rank)].program))];
  }

  void AddDevice(int rank, Json& data) const {
    const SimulatedProgram& simulated = SimulatedOf(rank);
    const Program& program = plan_.programs[static_cast<size_t>(simulated.program)];
    Json spans = Json::array();
    double busy = 0;
    for (const SimulatedSpan& span : simulated.spans) spans.push_back({span.instruction, span.start * 1e6, span.end * 1e6});
    for (size_t s = 0; s < simulated.busy.size(); ++s) {
      if (program.streams[s].kind == StreamKind::kCompute) busy = std::max(busy, simulated.busy[s]);
    }
    data["devices"].push_back({{"name", std::string(DeviceKindName(plan_.targets[0].device)) + ":" + std::to_string(rank)},
                               {"program", place_.at(simulated.program)},
                               {"spans", spans},
                               {"busy", simulation_.seconds > 0 ? busy / simulation_.seconds : 0},
                               {"exposed_us", simulated.exposed * 1e6},
                               {"peak_bytes", program.transient_bytes},
                               {"state_bytes", plan_.places[static_cast<size_t>(program.place)].state_bytes}});
    for (const auto& [before, after] : EventArrows(program)) data["arrows"].push_back({rank, before, after});
  }

  Json Communications(size_t drawn) const {
    Json communications = Json::array();
    for (const Communication& encounter : MatchCommunication(plan_, entry_)) {
      Json members = Json::array();
      for (const auto& [rank, instruction] : encounter) {
        if (rank < static_cast<int>(drawn)) members.push_back({rank, instruction});
      }
      if (members.empty()) continue;
      const auto& [rank, instruction] = encounter.front();
      const Program& program = plan_.programs[static_cast<size_t>(entry_.ranks[static_cast<size_t>(rank)].program)];
      communications.push_back(
          {{"name", JsonOf(program, program.instructions[static_cast<size_t>(instruction)])["name"]}, {"members", members}});
    }
    return communications;
  }

  const Plan& plan_;
  const Entry& entry_;
  const Simulation& simulation_;
  std::map<int, int> place_;  // index of a program among the simulated ones
};

}  // namespace

std::string PlanPage(const Plan& plan, int entry, const Simulation& simulation, const std::string& title) {
  std::string data = PageData(plan, plan.entries[static_cast<size_t>(entry)], simulation)
                         .Make(title)
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // Only this sequence ends a script element.
  std::string safe;
  for (char c : data) safe += c == '<' ? "\\u003c" : std::string(1, c);
  std::string page(kPlanPageTemplate);
  const std::string_view mark = "__PLAN_JSON__";
  const size_t at = page.find(mark);
  GRADLOOM_CHECK(at != std::string::npos);
  return page.replace(at, mark.size(), safe);
}

}  // namespace gradloom

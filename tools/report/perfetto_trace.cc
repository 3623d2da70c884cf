#include "tools/report/perfetto_trace.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/plan/buffer_lives.h"
#include "tools/report/chrome_trace.h"
#include "tools/report/perfetto.pb.h"
#include "tools/report/schedule.h"

namespace gradloom {
namespace {

constexpr uint32_t kSequence = 1;
constexpr uint64_t kTracksOfDevice = 1000;  // more than the number of streams of a program

uint64_t ProcessTrack(size_t rank) { return (rank + 1) * kTracksOfDevice; }
uint64_t StreamTrack(size_t rank, int stream) { return ProcessTrack(rank) + 1 + static_cast<uint64_t>(stream); }
uint64_t BytesTrack(size_t rank) { return ProcessTrack(rank) + kTracksOfDevice - 1; }

// By instruction of a program: the transient bytes that are live while it runs.
std::vector<int64_t> BytesInUse(const Program& program) {
  std::vector<int64_t> change(program.instructions.size() + 1, 0);
  const std::vector<BufferLife> lives = LivesOf(program);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.arena != Arena::kTransient || buffer.whole >= 0 || lives[b].first < 0) continue;
    change[static_cast<size_t>(lives[b].first)] += buffer.bytes;
    change[static_cast<size_t>(lives[b].last) + 1] -= buffer.bytes;
  }
  std::vector<int64_t> bytes;
  int64_t now = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) bytes.push_back(now += change[i]);
  return bytes;
}

}  // namespace

struct PerfettoTrace::Content {
  perfetto::Trace trace;

  perfetto::TracePacket& Packet(int64_t nanoseconds) {
    perfetto::TracePacket& packet = *trace.add_packet();
    packet.set_trusted_packet_sequence_id(kSequence);
    if (nanoseconds > 0) packet.set_timestamp(static_cast<uint64_t>(nanoseconds));
    return packet;
  }

  perfetto::TrackDescriptor& Track(uint64_t uuid, const std::string& name, uint64_t parent) {
    perfetto::TrackDescriptor& track = *Packet(0).mutable_track_descriptor();
    track.set_uuid(uuid);
    track.set_name(name);
    if (parent != 0) track.set_parent_uuid(parent);
    return track;
  }

  perfetto::TrackEvent& Begin(uint64_t track, const std::string& name, const char* category, int64_t nanoseconds) {
    perfetto::TrackEvent& begin = *Packet(nanoseconds).mutable_track_event();
    begin.set_type(perfetto::TrackEvent::SLICE_BEGIN);
    begin.set_track_uuid(track);
    begin.set_name(name);
    begin.add_categories(category);
    return begin;
  }

  void End(uint64_t track, int64_t nanoseconds) {
    perfetto::TrackEvent& end = *Packet(nanoseconds).mutable_track_event();
    end.set_type(perfetto::TrackEvent::SLICE_END);
    end.set_track_uuid(track);
  }
};

PerfettoTrace::PerfettoTrace(const Plan& plan, int process) : plan_(plan), content_(std::make_unique<Content>()) {
  // Numbered after the devices, so that the traces of a job's processes can be merged.
  const size_t host = plan.num_ranks() + static_cast<size_t>(process);
  const std::string host_name = "rank " + std::to_string(process);
  perfetto::TrackDescriptor& of_host = content_->Track(ProcessTrack(host), host_name, 0);
  of_host.mutable_process()->set_pid(static_cast<int>(host) + 1);
  of_host.mutable_process()->set_process_name(host_name);
  host_track_ = ProcessTrack(host) + 1;
  content_->Track(host_track_, "host thread", ProcessTrack(host));
  // Entries have the same devices; the streams of the entry with the most are shown.
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    const std::string name = std::string(DeviceKindName(plan.targets[0].device)) + ":" + std::to_string(rank);
    perfetto::TrackDescriptor& process = content_->Track(ProcessTrack(rank), name, 0);
    process.mutable_process()->set_pid(static_cast<int>(rank) + 1);
    process.mutable_process()->set_process_name(name);
    const Program* most = nullptr;
    for (const Entry& entry : plan.entries) {
      const Program& program = plan.programs[static_cast<size_t>(entry.ranks[rank].program)];
      if (most == nullptr || program.streams.size() > most->streams.size()) most = &program;
    }
    for (size_t s = 0; most != nullptr && s < most->streams.size(); ++s) {
      content_->Track(StreamTrack(rank, static_cast<int>(s)), StreamName(*most, s), ProcessTrack(rank));
    }
    content_->Track(BytesTrack(rank), "transient bytes", ProcessTrack(rank))
        .mutable_counter()
        ->set_unit(perfetto::CounterDescriptor::SIZE_BYTES);
  }
}

PerfettoTrace::~PerfettoTrace() = default;

void PerfettoTrace::AddHost(const std::string& name, int64_t begin_ns, int64_t end_ns, int64_t step) {
  perfetto::DebugAnnotation& annotation = *content_->Begin(host_track_, name, "host", begin_ns).add_debug_annotations();
  annotation.set_name("step");
  annotation.set_int_value(step);
  content_->End(host_track_, end_ns);
}

void PerfettoTrace::Add(int entry_index, std::span<const TimedInstruction> times, int64_t step) {
  const Entry& entry = plan_.entries[static_cast<size_t>(entry_index)];
  // Arrows lead from one instruction to another; a collective is a chain through all of its ranks.
  std::map<std::pair<int, int>, std::vector<uint64_t>> from, to;  // by rank and instruction
  for (size_t rank = 0; rank < entry.ranks.size(); ++rank) {
    const Program& program = plan_.programs[static_cast<size_t>(entry.ranks[rank].program)];
    for (const auto& [before, after] : EventArrows(program)) {
      from[{static_cast<int>(rank), before}].push_back(next_flow_);
      to[{static_cast<int>(rank), after}].push_back(next_flow_++);
    }
  }
  for (const Communication& encounter : MatchCommunication(plan_, entry)) {
    for (const auto& member : encounter) from[member].push_back(next_flow_);
    ++next_flow_;
  }
  std::map<int, std::vector<int64_t>> bytes;  // by program
  for (const TimedInstruction& timed : times) {
    const int program_index = entry.ranks[static_cast<size_t>(timed.rank)].program;
    const Program& program = plan_.programs[static_cast<size_t>(program_index)];
    const Instruction& instruction = program.instructions[static_cast<size_t>(timed.instruction)];
    if (IsSignal(instruction)) continue;
    const auto rank = static_cast<size_t>(timed.rank);
    const uint64_t track = StreamTrack(rank, instruction.stream);
    const char* category = Communicates(instruction) ? "communication" : "compute";
    perfetto::TrackEvent& begin = content_->Begin(track, InstructionName(instruction), category, timed.begin_ns);
    const auto annotate = [&](const char* name) {
      perfetto::DebugAnnotation& annotation = *begin.add_debug_annotations();
      annotation.set_name(name);
      return &annotation;
    };
    if (!instruction.origin.empty()) annotate("node")->set_string_value(Escaped(instruction.origin, 200));
    if (instruction.phase != PlanPhase::kNone) annotate("phase")->set_string_value(std::string(PhaseName(instruction.phase)));
    annotate("step")->set_int_value(step);
    const std::pair<int, int> key(timed.rank, timed.instruction);
    for (uint64_t flow : from[key]) begin.add_flow_ids(flow);
    for (uint64_t flow : to[key]) begin.add_terminating_flow_ids(flow);
    content_->End(track, timed.end_ns);

    auto& in_use = bytes[program_index];
    if (in_use.empty()) in_use = BytesInUse(program);
    perfetto::TrackEvent& counter = *content_->Packet(timed.begin_ns).mutable_track_event();
    counter.set_type(perfetto::TrackEvent::COUNTER);
    counter.set_track_uuid(BytesTrack(rank));
    counter.set_counter_value(in_use[static_cast<size_t>(timed.instruction)]);
  }
}

std::string PerfettoTrace::ChromeJson() const { return ChromeTraceOf(content_->trace); }
std::string PerfettoTrace::Serialized() const { return content_->trace.SerializeAsString(); }

}  // namespace gradloom

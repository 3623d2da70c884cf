#include "compiler/cost/simulate.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// By the row of the launch's operator, as the compiler counts a node.
Cost CostOfLaunch(const Program& program, const Instruction& launch) {
  Graph graph;
  Node node{.op = launch.op, .domain = launch.domain};
  node.attributes = launch.attributes;
  for (const Use& use : launch.uses) {
    if (use.access == Access::kScratch) continue;
    ValueId id = kNoValue;
    if (use.buffer >= 0) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
      id = graph.AddValue(buffer.name, buffer.dtype, buffer.shape, Role::kActivation);
    }
    (use.access == Access::kRead ? node.inputs : node.outputs).push_back(id);
  }
  return CostOf(graph, node);
}

class Simulator {
 public:
  Simulator(const Plan& plan, const Entry& entry, const Cluster& cluster, int devices, const Profile* profile)
      : plan_(plan), cluster_(cluster), profile_(profile) {
    made_.devices = devices > 0 ? devices : static_cast<int>(entry.ranks.size());
    std::map<int, int> ranks;
    for (const RankBinding& rank : entry.ranks) ++ranks[rank.program];
    if (devices > 0) ranks = {{entry.ranks[0].program, devices}};
    for (const auto& [program, count] : ranks) AddRunner(program, count);
    // CPU devices share cores: more threads than those take turns.
    int threads = 0;
    for (const Runner& runner : runners_) {
      for (const Stream& stream : runner.program->streams)
        threads += stream.kind == StreamKind::kCompute ? runner.ranks * stream.threads : 0;
    }
    if (cluster.shared_cores > 0) turns_ = std::max(1.0, static_cast<double>(threads) / cluster.shared_cores);
  }

  Simulation Run() {
    while (Advance() || Meet()) {
    }
    Finish();
    return std::move(made_);
  }

 private:
  // Something that has happened, to follow back: an instruction of a runner.
  struct Cause {
    int runner = -1, instruction = -1;
  };

  struct Lane {
    std::vector<int> instructions;
    size_t next = 0;
    double free = 0;
    Cause last;  // what `free` is the end of
  };

  struct Runner {
    const Program* program;
    int index, ranks;
    std::vector<Lane> lanes;
    std::vector<double> event;  // when it was recorded; negative: not yet
    std::vector<Cause> event_cause;
    std::vector<int> event_stream;
    std::vector<Cause> cause;  // by instruction: what it began after
    std::vector<SimulatedSpan> spans;
  };

  void AddRunner(int program, int ranks) {
    const Program& p = plan_.programs[static_cast<size_t>(program)];
    Runner runner{.program = &p, .index = program, .ranks = ranks};
    runner.lanes.resize(p.streams.size());
    for (size_t i = 0; i < p.instructions.size(); ++i) {
      runner.lanes[static_cast<size_t>(p.instructions[i].stream)].instructions.push_back(static_cast<int>(i));
    }
    runner.event.assign(static_cast<size_t>(p.num_events), -1);
    runner.event_cause.resize(static_cast<size_t>(p.num_events));
    runner.event_stream.resize(static_cast<size_t>(p.num_events));
    runner.cause.resize(p.instructions.size());
    runners_.push_back(std::move(runner));
  }

  double Seconds(const Runner& runner, int index) const {
    if (profile_ != nullptr && static_cast<size_t>(runner.index) < profile_->size()) {
      const auto& measured = (*profile_)[static_cast<size_t>(runner.index)];
      if (static_cast<size_t>(index) < measured.size() && measured[static_cast<size_t>(index)] >= 0)
        return measured[static_cast<size_t>(index)];
    }
    const Instruction& instruction = runner.program->instructions[static_cast<size_t>(index)];
    const int threads = runner.program->streams[static_cast<size_t>(instruction.stream)].threads;
    if (instruction.kind == InstructionKind::kLaunch) {
      return turns_ * SecondsOf(CostOfLaunch(*runner.program, instruction), threads, cluster_.device);
    }
    if (instruction.kind != InstructionKind::kCopy) return 0;
    const double bytes = static_cast<double>(runner.program->buffers[static_cast<size_t>(instruction.uses[0].buffer)].bytes);
    return turns_ * SecondsOf({.flops = 0, .bytes = 2 * bytes}, threads, cluster_.device);
  }

  // Everything that no meeting holds up. Whether anything happened.
  bool Advance() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      for (size_t r = 0; r < runners_.size(); ++r) {
        for (Lane& lane : runners_[r].lanes) {
          while (lane.next < lane.instructions.size() && Step(static_cast<int>(r), lane)) again = any = true;
        }
      }
    }
    return any;
  }

  // The lane's next instruction; false where it has to wait.
  bool Step(int r, Lane& lane) {
    Runner& runner = runners_[static_cast<size_t>(r)];
    const int index = lane.instructions[lane.next];
    const Instruction& instruction = runner.program->instructions[static_cast<size_t>(index)];
    const auto event = static_cast<size_t>(std::max(instruction.event, 0));
    switch (instruction.kind) {
      case InstructionKind::kCollective: return false;
      case InstructionKind::kRecord:
        runner.event[event] = lane.free;
        runner.event_cause[event] = lane.last;
        runner.event_stream[event] = instruction.stream;
        break;
      case InstructionKind::kWait: {
        if (runner.event[event] < 0) return false;
        const double there = runner.event[event] + (runner.event_stream[event] != instruction.stream ? cluster_.device.event_seconds : 0);
        if (there > lane.free) {
          lane.free = there;
          lane.last = runner.event_cause[event];
        }
        break;
      }
      default: {
        const double seconds = Seconds(runner, index);
        runner.cause[static_cast<size_t>(index)] = lane.last;
        runner.spans.push_back({index, lane.free, lane.free + seconds});
        lane.free += seconds;
        lane.last = {r, index};
      }
    }
    ++lane.next;
    return true;
  }

  Lane* AtMeeting(Runner& runner) {
    for (Lane& lane : runner.lanes) {
      if (lane.next == lane.instructions.size()) continue;
      const Instruction& i = runner.program->instructions[static_cast<size_t>(lane.instructions[lane.next])];
      if (i.kind == InstructionKind::kCollective) return &lane;
    }
    return nullptr;
  }

  // The next meeting, to which all have come. Whether there is one.
  bool Meet() {
    double start = 0;
    Cause cause;
    std::vector<Lane*> lanes;
    for (Runner& runner : runners_) {
      Lane* lane = AtMeeting(runner);
      if (lane == nullptr) return false;
      if (lane->free >= start) {
        start = lane->free;
        cause = lane->last;
      }
      lanes.push_back(lane);
    }
    for (size_t r = 0; r < runners_.size(); ++r) {
      const int index = lanes[r]->instructions[lanes[r]->next++];
      const Instruction& meeting = runners_[r].program->instructions[static_cast<size_t>(index)];
      int64_t bytes = 0;
      for (const Use& use : meeting.uses) {
        if (use.access == Access::kRead) bytes += runners_[r].program->buffers[static_cast<size_t>(use.buffer)].bytes;
      }
      const double end = start + AllReduceSeconds(bytes, made_.devices, cluster_);
      runners_[r].cause[static_cast<size_t>(index)] = cause;
      runners_[r].spans.push_back({index, start, end});
      lanes[r]->free = end;
      lanes[r]->last = {static_cast<int>(r), index};
    }
    return true;
  }

  void Finish() {
    Cause last;
    for (Runner& runner : runners_) {
      for (const Lane& lane : runner.lanes) {
        GRADLOOM_CHECK(lane.next == lane.instructions.size());
        if (lane.free < made_.seconds || lane.last.instruction < 0) continue;
        made_.seconds = lane.free;
        last = lane.last;
      }
    }
    for (Cause at = last; at.instruction >= 0;) {
      made_.critical.emplace_back(at.runner, at.instruction);
      at = runners_[static_cast<size_t>(at.runner)].cause[static_cast<size_t>(at.instruction)];
    }
    std::reverse(made_.critical.begin(), made_.critical.end());
    if (runners_.size() > 1 || runners_[0].ranks > 1 || runners_[0].lanes.size() > 1) made_.seconds += cluster_.device.wake_seconds;
    for (Runner& runner : runners_) made_.programs.push_back(Summary(runner));
  }

  SimulatedProgram Summary(Runner& runner) const {
    SimulatedProgram summary{.program = runner.index, .ranks = runner.ranks};
    summary.busy.assign(runner.lanes.size(), 0);
    std::vector<std::pair<double, int>> edges;  // of computation: begins and ends
    std::vector<SimulatedSpan> meetings;
    for (const SimulatedSpan& span : runner.spans) {
      const Instruction& instruction = runner.program->instructions[static_cast<size_t>(span.instruction)];
      summary.busy[static_cast<size_t>(instruction.stream)] += span.end - span.start;
      if (instruction.kind == InstructionKind::kCollective) {
        meetings.push_back(span);
        summary.communication += span.end - span.start;
      } else if (span.end > span.start) {
        edges.emplace_back(span.start, 1);
        edges.emplace_back(span.end, -1);
      }
    }
    std::sort(edges.begin(), edges.end());
    for (const SimulatedSpan& meeting : meetings) summary.exposed += Idle(edges, meeting.start, meeting.end);
    std::sort(runner.spans.begin(), runner.spans.end(),
              [](const SimulatedSpan& a, const SimulatedSpan& b) { return a.instruction < b.instruction; });
    summary.spans = std::move(runner.spans);
    return summary;
  }

  // Of [begin, end], the seconds in which nothing computes.
  static double Idle(const std::vector<std::pair<double, int>>& edges, double begin, double end) {
    double idle = 0, from = begin;
    int running = 0;
    for (const auto& [time, change] : edges) {
      if (running == 0 && time > from) idle += std::max(0.0, std::min(time, end) - std::max(from, begin));
      running += change;
      from = std::max(begin, time);
      if (time >= end) return idle;
    }
    return idle + std::max(0.0, end - from);
  }

  const Plan& plan_;
  const Cluster& cluster_;
  const Profile* profile_;
  double turns_ = 1;
  std::vector<Runner> runners_;
  Simulation made_;
};

}  // namespace

Simulation Simulate(const Plan& plan, int entry, const Cluster& cluster, int devices, const Profile* profile) {
  if (entry < 0 || entry >= static_cast<int>(plan.entries.size())) {
    throw Error(ErrorCode::kPlan, "the plan has no entry " + std::to_string(entry), "", "the verb inspect lists them");
  }
  return Simulator(plan, plan.entries[static_cast<size_t>(entry)], cluster, devices, profile).Run();
}

}  // namespace gradloom

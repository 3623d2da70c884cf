#include "compiler/cost/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "compiler/cost/cached_shares.h"
#include "compiler/cost/launch_work.h"
#include "compiler/cost/shared_device.h"
#include "compiler/ops/trip_estimate.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The seconds of an instruction: those of launches, in which a GPU does nothing, and those of the work.
struct Duration {
  double fixed = 0, work = 0;

  Duration& operator+=(const Duration& other) {
    fixed += other.fixed;
    work += other.work;
    return *this;
  }
  Duration Times(double factor) const { return {fixed * factor, work * factor}; }
  double seconds() const { return fixed + work; }
};

// The duration of an instruction that does not communicate: for a branch that of the longer body, for a loop its largest number of
// iterations. `cached`: the share of its bytes that are in caches.
Duration DurationOf(const Plan& plan, const Program& program, const Instruction& instruction, int threads, double cached,
                    const DeviceCosts& device) {
  const auto of_work = [&](const KernelWork& work, MatrixWork matrix) {
    return Duration{work.launches * device.launch_seconds, WorkSeconds(work, matrix, cached, threads, device)};
  };
  const auto body = [&](const Program& inside) {
    Duration sum;
    for (const Instruction& i : inside.instructions) sum += DurationOf(plan, inside, i, threads, cached, device);
    return sum;
  };
  switch (instruction.kind) {
    case InstructionKind::kLaunch: {
      const MatrixWork matrix = CostOfLaunch(program, instruction).matrix;
      Duration sum;
      for (const KernelWork& work : WorkOfLaunch(plan, program, instruction)) sum += of_work(work, matrix);
      return sum;
    }
    case InstructionKind::kCopy: {
      const double bytes = static_cast<double>(program.buffers[static_cast<size_t>(instruction.uses[0].buffer)].bytes);
      return of_work({.bytes = 2 * bytes}, MatrixWork::kNone);
    }
    case InstructionKind::kIf: {
      const Duration bodies[] = {body(instruction.bodies[0]), body(instruction.bodies[1])};
      return bodies[0].seconds() < bodies[1].seconds() ? bodies[1] : bodies[0];
    }
    case InstructionKind::kLoop: return body(instruction.bodies[0]).Times(EstimatedTrips(instruction.trip_bound));
    default: return {};
  }
}

class Simulator {
 public:
  Simulator(const Plan& plan, const Entry& entry, const Cluster& cluster, int devices, const Profile* profile)
      : plan_(plan), cluster_(cluster), device_(cluster.device), profile_(profile) {
    result_.devices = devices > 0 ? devices : static_cast<int>(entry.ranks.size());
    result_.samples = entry.batch;
    std::map<int, std::pair<int, int>> ranks;  // by program: a rank that runs it, and the number of such ranks
    if (devices > 0) {
      const std::set<int> replica = CopyOfModel(entry);
      const int each = static_cast<int>(replica.size());
      if (devices % each != 0) {
        throw Error(
            ErrorCode::kConfig,
            std::to_string(devices) + " devices are not a multiple of the " + std::to_string(each) + " that a replica of the model takes",
            "--devices", "use a multiple of " + std::to_string(each));
      }
      result_.samples = entry.ranks[0].shard_length * (devices / each);
      for (int rank : replica) ranks[entry.ranks[static_cast<size_t>(rank)].program] = {rank, devices / each};
    } else if (!PeersDiffer(entry) || SharesGpus(entry)) {
      for (size_t r = 0; r < entry.ranks.size(); ++r) AddRunner(entry.ranks[r].program, entry.ranks[r], static_cast<int>(r), 1);
    } else {
      for (size_t r = 0; r < entry.ranks.size(); ++r) {
        ++ranks.emplace(entry.ranks[r].program, std::pair(static_cast<int>(r), 0)).first->second.second;
      }
    }
    for (const auto& [program, rank] : ranks) AddRunner(program, entry.ranks[static_cast<size_t>(rank.first)], rank.first, rank.second);
    for (size_t r = 0; r < runners_.size(); ++r) {
      runner_of_.emplace(runners_[r].rank, r);
      for (int number : runners_[r].binding->groups) {
        Group& group = groups_[number];
        if (group.members.empty()) group.missing = r;
        if (group.members.empty() || group.members.back() != r) group.members.push_back(r);
      }
      Change(r);
    }
    PlaceOnGpus(devices == 0 && SharesGpus(entry));
    if (cluster.shared_cores > 0) ShareCores();
    for (const Runner& runner : runners_) {
      if (device_.cache_bytes > 0 && !cached_.contains(runner.program))
        cached_.emplace(runner.program, CachedShares(*runner.program, device_.cache_bytes));
    }
  }

  Simulation Run() {
    do {
      StartAll();
    } while (PassTime());
    Finish();
    return std::move(result_);
  }

 private:
  // An instruction of a runner, for following the critical path back.
  struct Cause {
    int runner = -1, instruction = -1;
  };

  struct Lane {
    std::vector<int> instructions;
    size_t next = 0;
    double free = 0;  // when the next instruction may start; while one runs on a shared device: when that one started
    bool running = false;
    bool collective = false;  // whether a collective runs until `free`
    Cause last;               // the instruction that ends at `free`
  };

  struct Runner {
    const Program* program;
    const RankBinding* binding;  // of `rank`, which represents all ranks of the program
    int rank, index, ranks;
    std::vector<Lane> lanes;
    bool changed = false;              // whether it is in changed_
    size_t gpu = 0, first_stream = 0;  // of gpus_, and of its streams
    std::vector<double> event;         // when it was recorded; negative: not yet
    std::vector<Cause> event_cause;
    std::vector<int> event_stream;
    std::vector<Cause> cause;  // by instruction: the one that it waited for
    std::vector<SimulatedSpan> spans;
  };

  struct Group {
    std::vector<size_t> members;  // runners
    size_t missing = 0;           // the one of them that was found missing last; at first any
  };

  // Whether the peers of every rank all run different programs, so that one rank can represent each program.
  bool PeersDiffer(const Entry& entry) const {
    std::map<int, std::set<int>> slots;  // by program: the slots of its peers
    for (const RankBinding& rank : entry.ranks) {
      const auto [at, fresh] = slots.try_emplace(rank.program);
      for (const Instruction& i : plan_.programs[static_cast<size_t>(rank.program)].instructions) {
        if (fresh && (i.kind == InstructionKind::kSend || i.kind == InstructionKind::kRecv)) at->second.insert(i.peer);
      }
      std::set<int> programs;
      for (int slot : at->second) {
        if (!programs.insert(entry.ranks[static_cast<size_t>(rank.peers[static_cast<size_t>(slot)])].program).second) return false;
      }
    }
    return true;
  }

  void AddRunner(int program, const RankBinding& binding, int rank, int ranks) {
    const Program& p = plan_.programs[static_cast<size_t>(program)];
    Runner runner{
        .program = &p, .binding = &binding, .rank = rank, .index = program, .ranks = ranks, .lanes = std::vector<Lane>(p.streams.size())};
    for (size_t i = 0; i < p.instructions.size(); ++i) {
      runner.lanes[static_cast<size_t>(p.instructions[i].stream)].instructions.push_back(static_cast<int>(i));
    }
    runner.event.assign(static_cast<size_t>(p.num_events), -1);
    runner.event_cause.resize(static_cast<size_t>(p.num_events));
    runner.event_stream.resize(static_cast<size_t>(p.num_events));
    runner.cause.resize(p.instructions.size());
    runners_.push_back(std::move(runner));
  }

  // CPU devices share the cores, memory and caches. If there are more threads than cores, they take turns.
  void ShareCores() {
    int threads = 0, ranks = 0;
    for (const Runner& runner : runners_) {
      ranks += runner.ranks;
      for (const Stream& stream : runner.program->streams)
        threads += stream.kind == StreamKind::kCompute ? runner.ranks * stream.threads : 0;
    }
    turns_ = std::max(1.0, static_cast<double>(threads) / cluster_.shared_cores);
    const double at_a_time = std::max(1.0, ranks / turns_);
    device_.bandwidth_threads /= at_a_time;
    device_.cache_bytes /= ranks;
  }

  // Whether several ranks run on one GPU.
  bool SharesGpus(const Entry& entry) const {
    if (cluster_.gpus.size() < entry.ranks.size()) return false;
    const auto end = cluster_.gpus.begin() + static_cast<std::ptrdiff_t>(entry.ranks.size());
    return std::set<int>(cluster_.gpus.begin(), end).size() < entry.ranks.size();
  }

  // Gives each runner its GPU and streams there.
  void PlaceOnGpus(bool shared) {
    std::map<int, std::pair<size_t, size_t>> gpus;  // by number: the index, and the number of streams
    for (Runner& runner : runners_) {
      const int number = shared ? cluster_.gpus[static_cast<size_t>(runner.rank)] : static_cast<int>(&runner - runners_.data());
      auto& [gpu, streams] = gpus.try_emplace(number, gpus.size(), 0).first->second;
      runner.gpu = gpu;
      runner.first_stream = std::exchange(streams, streams + runner.lanes.size());
    }
    gpus_.resize(gpus.size(), SharedDevice(0));
    for (const auto& [number, gpu] : gpus) gpus_[gpu.first] = SharedDevice(gpu.second);
  }

  // Tells a GPU what the collectives that now run on it take.
  void TakeShares() {
    if (!cluster_.device.streams_share) return;
    // Even if several run at a time, computation proceeds.
    constexpr double kMostTaken = 0.5;
    std::vector<double> taken(gpus_.size(), 0);
    for (const Runner& runner : runners_) {
      for (const Lane& lane : runner.lanes) {
        if (lane.collective && lane.free > now_) taken[runner.gpu] += cluster_.device.collective_share;
      }
    }
    for (size_t gpu = 0; gpu < gpus_.size(); ++gpu) gpus_[gpu].SetTaken(std::min(taken[gpu], kMostTaken));
  }

  // The measured seconds of an instruction; negative: none.
  double Measured(const Runner& runner, int index) const {
    if (profile_ == nullptr || static_cast<size_t>(runner.index) >= profile_->size()) return -1;
    const auto& measured = (*profile_)[static_cast<size_t>(runner.index)];
    return static_cast<size_t>(index) < measured.size() ? measured[static_cast<size_t>(index)] : -1;
  }

  // Notes that the runner may have something to start now.
  void Change(size_t r) {
    if (!std::exchange(runners_[r].changed, true)) changed_.push_back(r);
  }

  // Starts everything that starts now. A step of many runners has many times at which only a few of them do anything.
  void StartAll() {
    for (size_t i = 0; i < changed_.size(); ++i) {
      Runner& runner = runners_[changed_[i]];
      runner.changed = false;
      Advance(changed_[i]);
      for (Lane& lane : runner.lanes) Communicate(changed_[i], lane);
    }
    changed_.clear();
  }

  // Starts everything of a runner that starts now and does not wait for communication.
  void Advance(size_t r) {
    for (bool again = true; again;) {
      again = false;
      for (size_t lane = 0; lane < runners_[r].lanes.size(); ++lane) {
        while (Step(static_cast<int>(r), lane)) again = true;
      }
    }
  }

  // Starts the lane's next instruction. Returns false if there is none or it has to wait.
  bool Step(int r, size_t stream) {
    Runner& runner = runners_[static_cast<size_t>(r)];
    Lane& lane = runner.lanes[stream];
    if (Next(runner, lane) == nullptr) return false;
    const int index = lane.instructions[lane.next];
    const Instruction& instruction = runner.program->instructions[static_cast<size_t>(index)];
    const auto event = static_cast<size_t>(std::max(instruction.event, 0));
    switch (instruction.kind) {
      case InstructionKind::kCollective:
      case InstructionKind::kSend:
      case InstructionKind::kRecv: return false;
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
          lane.collective = false;
          lane.last = runner.event_cause[event];
        }
        break;
      }
      default: Launch(runner, lane, index); return true;
    }
    ++lane.next;
    return true;
  }

  // Many ranks run the same program.
  Duration KnownDuration(const Program& program, int index, int threads) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
    const auto [known, fresh] = durations_.try_emplace(&instruction);
    if (!fresh) return known->second;
    const auto cached = cached_.find(&program);
    const double share = cached == cached_.end() ? 0 : cached->second[static_cast<size_t>(index)];
    return known->second = DurationOf(plan_, program, instruction, threads, share, device_);
  }

  void Launch(Runner& runner, Lane& lane, int index) {
    const Instruction& instruction = runner.program->instructions[static_cast<size_t>(index)];
    const Stream& stream = runner.program->streams[static_cast<size_t>(instruction.stream)];
    runner.cause[static_cast<size_t>(index)] = lane.last;
    const double measured = Measured(runner, index);
    // Inputs that are copied ahead are present when the step begins.
    const Duration duration = stream.kind == StreamKind::kCopy ? Duration() : KnownDuration(*runner.program, index, stream.threads);
    // What was measured contains the delays by other streams.
    if (measured < 0 && cluster_.device.streams_share && duration.seconds() > 0) {
      gpus_[runner.gpu].Launch(runner.first_stream + static_cast<size_t>(instruction.stream), duration.fixed, duration.work);
      lane.running = true;
      return;
    }
    End(runner, lane, lane.free + (measured >= 0 ? measured : turns_ * duration.seconds()));
  }

  // Ends the lane's next instruction, which started when the lane was free.
  void End(Runner& runner, Lane& lane, double end) {
    const int index = lane.instructions[lane.next++];
    runner.spans.push_back({index, lane.free, end});
    lane.free = end;
    lane.last = {static_cast<int>(&runner - runners_.data()), index};
    lane.running = false;
    lane.collective = runner.program->instructions[static_cast<size_t>(index)].kind == InstructionKind::kCollective;
  }

  // Passes to the next time at which something ends. Returns false if nothing runs.
  bool PassTime() {
    TakeShares();
    double next = std::numeric_limits<double>::infinity();
    for (const SharedDevice& gpu : gpus_) next = std::min(next, gpu.NextChange());
    for (const Runner& runner : runners_) {
      for (const Lane& lane : runner.lanes) next = !lane.running && lane.free > now_ ? std::min(next, lane.free) : next;
    }
    if (next == std::numeric_limits<double>::infinity()) return false;
    const double before = std::exchange(now_, next);
    for (SharedDevice& gpu : gpus_) gpu.AdvanceTo(now_);
    for (size_t r = 0; r < runners_.size(); ++r) {
      Runner& runner = runners_[r];
      for (size_t stream = 0; stream < runner.lanes.size(); ++stream) {
        Lane& lane = runner.lanes[stream];
        if (lane.running && !gpus_[runner.gpu].busy(runner.first_stream + stream)) {
          End(runner, lane, now_);
          Change(r);
        } else if (!lane.running && lane.free > before && lane.free <= now_) {
          Change(r);
        }
      }
    }
    return true;
  }

  // The instruction that the lane would start now; null: it has no more, or is busy.
  const Instruction* Next(const Runner& runner, const Lane& lane) const {
    return lane.next == lane.instructions.size() || lane.running || lane.free > now_
               ? nullptr
               : &runner.program->instructions[static_cast<size_t>(lane.instructions[lane.next])];
  }

  // A lane of the runner whose next instruction fits; null if there is none.
  template <typename Fits>
  Lane* LaneAt(Runner& runner, Fits fits) const {
    for (Lane& lane : runner.lanes) {
      const Instruction* next = Next(runner, lane);
      if (next != nullptr && fits(*next)) return &lane;
    }
    return nullptr;
  }

  using Arrival = std::pair<size_t, Lane*>;  // a runner, and one of its lanes

  // Runs the collective or transfer that the lane waits for, if all of its ranks have arrived.
  void Communicate(size_t r, Lane& lane) {
    const Instruction* next = Next(runners_[r], lane);
    if (next == nullptr || !Communicates(*next)) return;
    const bool collective = next->kind == InstructionKind::kCollective;
    const std::vector<Arrival> together = collective ? Collected(r, *next) : Joined(r, lane, *next);
    if (together.empty()) return;
    // The sender comes first.
    const Runner& first = runners_[together.front().first];
    const int index = together.front().second->instructions[together.front().second->next];
    const Instruction& instruction = first.program->instructions[static_cast<size_t>(index)];
    Pass(together, BytesRead(*first.program, instruction), instruction);
  }

  static int GroupOf(const Runner& runner, const Instruction& i) { return runner.binding->groups[static_cast<size_t>(i.group)]; }

  // All members of the collective's group, or none if one has not arrived.
  std::vector<Arrival> Collected(size_t first, const Instruction& collective) {
    const int number = GroupOf(runners_[first], collective);
    Group& group = groups_.at(number);
    const auto lane_of = [&](size_t r) {
      return LaneAt(runners_[r],
                    [&](const Instruction& i) { return i.kind == InstructionKind::kCollective && GroupOf(runners_[r], i) == number; });
    };
    // Each member asks when it arrives. The one that was missing then has usually not come since.
    if (lane_of(group.missing) == nullptr) return {};
    std::vector<Arrival> together;
    for (size_t r : group.members) {
      Lane* lane = lane_of(r);
      if (lane == nullptr) {
        group.missing = r;
        return {};
      }
      together.emplace_back(r, lane);
    }
    return together;
  }

  // The sender and its receiver, of which one asks, or none if the other has not arrived.
  std::vector<Arrival> Joined(size_t r, Lane& lane, const Instruction& own) {
    const bool sends = own.kind == InstructionKind::kSend;
    const auto peer_of = [&](size_t of, const Instruction& i) { return runners_[of].binding->peers[static_cast<size_t>(i.peer)]; };
    const auto peer = runner_of_.find(peer_of(r, own));
    if (peer == runner_of_.end()) return {};
    const size_t p = peer->second;
    Lane* const other = LaneAt(runners_[p], [&](const Instruction& i) {
      return i.kind == (sends ? InstructionKind::kRecv : InstructionKind::kSend) && peer_of(p, i) == runners_[r].rank;
    });
    if (other == nullptr) return {};
    return sends ? std::vector<Arrival>{{r, &lane}, {p, other}} : std::vector<Arrival>{{p, other}, {r, &lane}};
  }

  void Pass(const std::vector<Arrival>& together, int64_t bytes, const Instruction& first) {
    const bool collective = first.kind == InstructionKind::kCollective;
    double start = 0;
    Cause cause;
    int members = 0;
    for (const auto& [r, lane] : together) {
      members += runners_[r].ranks;
      if (lane->free < start) continue;
      start = lane->free;
      cause = lane->last;
    }
    // A reduce is the first half of an all-reduce, after which each device has parts of the sum, and a broadcast the second half.
    const double share = first.collective == Collective::kBroadcast || first.collective == Collective::kReduceSum ? 0.5 : 1;
    const double end = start + (collective ? share * AllReduceSeconds(bytes, members, cluster_) : TransferSeconds(bytes, cluster_));
    for (const auto& [r, lane] : together) {
      runners_[r].cause[static_cast<size_t>(lane->instructions[lane->next])] = cause;
      lane->free = start;
      End(runners_[r], *lane, end);
      Change(r);
    }
  }

  void Finish() {
    Cause last;
    for (Runner& runner : runners_) {
      for (const Lane& lane : runner.lanes) {
        GRADLOOM_CHECK(lane.next == lane.instructions.size());
        if (lane.free < result_.seconds || lane.last.instruction < 0) continue;
        result_.seconds = lane.free;
        last = lane.last;
      }
    }
    for (Cause at = last; at.instruction >= 0;) {
      result_.critical.emplace_back(at.runner, at.instruction);
      at = runners_[static_cast<size_t>(at.runner)].cause[static_cast<size_t>(at.instruction)];
    }
    std::reverse(result_.critical.begin(), result_.critical.end());
    result_.seconds += cluster_.device.step_seconds;
    if (runners_.size() > 1 || runners_[0].ranks > 1 || runners_[0].lanes.size() > 1) result_.seconds += cluster_.device.wake_seconds;
    for (Runner& runner : runners_) result_.programs.push_back(Summary(runner));
  }

  SimulatedProgram Summary(Runner& runner) const {
    SimulatedProgram summary{.program = runner.index, .ranks = runner.ranks};
    summary.busy.assign(runner.lanes.size(), 0);
    std::vector<std::pair<double, int>> edges;  // starts and ends of computation
    std::vector<SimulatedSpan> communication_spans;
    for (const SimulatedSpan& span : runner.spans) {
      const Instruction& instruction = runner.program->instructions[static_cast<size_t>(span.instruction)];
      summary.busy[static_cast<size_t>(instruction.stream)] += span.end - span.start;
      if (Communicates(instruction)) {
        communication_spans.push_back(span);
        summary.communication += span.end - span.start;
      } else if (span.end > span.start) {
        edges.emplace_back(span.start, 1);
        edges.emplace_back(span.end, -1);
      }
    }
    std::sort(edges.begin(), edges.end());
    for (const SimulatedSpan& span : communication_spans) summary.exposed += Idle(edges, span.start, span.end);
    std::sort(runner.spans.begin(), runner.spans.end(),
              [](const SimulatedSpan& a, const SimulatedSpan& b) { return a.instruction < b.instruction; });
    summary.spans = std::move(runner.spans);
    return summary;
  }

  // The seconds of [begin, end] in which nothing computes.
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
  DeviceCosts device_;  // what each of the devices has, if they share some of it
  std::map<const Program*, std::vector<double>> cached_;
  const Profile* profile_;
  double turns_ = 1;
  double now_ = 0;
  std::vector<Runner> runners_;
  std::vector<size_t> changed_;      // runners that may have something to start now
  std::map<int, size_t> runner_of_;  // by rank
  std::map<int, Group> groups_;      // by number, of the plan
  std::vector<SharedDevice> gpus_;
  std::unordered_map<const Instruction*, Duration> durations_;
  Simulation result_;
};

}  // namespace

Simulation Simulate(const Plan& plan, int entry, const Cluster& cluster, int devices, const Profile* profile) {
  if (entry < 0 || entry >= static_cast<int>(plan.entries.size())) {
    throw Error(ErrorCode::kPlan, "the plan has no entry " + std::to_string(entry), "", "the verb inspect lists them");
  }
  return Simulator(plan, plan.entries[static_cast<size_t>(entry)], cluster, devices, profile).Run();
}

SimulatedUpdate SimulateUpdate(const Plan& plan, int entry, const Cluster& cluster, int devices, const Profile* profile) {
  SimulatedUpdate made{.batch = Simulate(plan, entry, cluster, devices, profile), .update = std::nullopt};
  if (plan.entries[static_cast<size_t>(entry)].kind != EntryKind::kAccumulate || plan.accumulate < 2) return made;
  const int last = plan.FindEntry(EntryKind::kLastBatch, plan.entries[static_cast<size_t>(entry)].batch);
  const auto update =
      std::find_if(plan.entries.begin(), plan.entries.end(), [](const Entry& other) { return other.kind == EntryKind::kUpdate; });
  if (last < 0 && update == plan.entries.end()) return made;
  made.batches = plan.accumulate;
  made.with_batch = last >= 0;
  made.update = Simulate(plan, last >= 0 ? last : static_cast<int>(update - plan.entries.begin()), cluster, devices, profile);
  return made;
}

double SimulatedUpdate::OfFirst(double SimulatedProgram::*what) const {
  return static_cast<double>(before()) * batch.programs.front().*what + (update ? update->programs.front().*what : 0);
}

}  // namespace gradloom

#include "runtime/exec/device_issue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/exec/rethrow.h"

namespace gradloom {

DeviceIssuer::DeviceIssuer(const Plan& plan, DeviceMemories& memories, Communicator* communicator, std::function<void()> before_abort)
    : memories_(memories),
      origin_(memories.device()),
      forked_(memories.device(), false),
      begin_(memories.ranks()),
      streams_(memories.ranks()),
      joined_(memories.ranks()),
      groups_(plan, memories, communicator, std::move(before_abort)) {
  memories.device().NameStream(origin(), "steps");
  for (size_t rank = memories.first(); rank < memories.last(); ++rank) begin_[rank] = DeviceEvent(*memories.rank(rank).device, true);
}

void DeviceIssuer::Await() { groups_.Await(memories_.device(), origin()); }

void DeviceIssuer::SetChaos(uint64_t seed) {
  chaotic_ = true;
  random_.seed(seed);
}

void* DeviceIssuer::StreamOf(size_t rank, size_t stream) {
  Device& device = *memories_.rank(rank).device;
  while (streams_[rank].size() <= stream) {
    const std::string name = "rank " + std::to_string(rank) + " stream " + std::to_string(streams_[rank].size());
    device.NameStream(streams_[rank].emplace_back(device).get(), name);
    joined_[rank].emplace_back(device, false);
  }
  return streams_[rank][stream].get();
}

void DeviceIssuer::Issue(DeviceEntry& entry, const IssueOptions& options) {
  groups_.Watched([&] { EnqueueAll(entry, options); });
}

void DeviceIssuer::EnqueueAll(DeviceEntry& entry, const IssueOptions& options) {
  options_ = options;
  overrun_loop_ = nullptr;
  turn_ = 0;
  // Ranges are nested, so that of the last phase ends before its step's, also after an error.
  const auto end_phase = [](DeviceIssuer* issuer) {
    issuer->phase_range_.reset();
    issuer->phase_ = PlanPhase::kNone;
  };
  const std::unique_ptr<DeviceIssuer, decltype(end_phase)> at_end(this, end_phase);
  Fork(entry);
  IssueLanes(entry);
  Join(entry);
}

DeviceRange DeviceIssuer::RangeOf(const Lane& lane) {
  static constexpr const char* kNames[] = {"", "fwd", "bwd", "opt"};
  const PlanPhase phase = lane.front().instruction->phase;
  if (phase != phase_ && phase != PlanPhase::kNone) {
    phase_range_.reset();
    phase_range_.emplace(memories_.device(), kNames[static_cast<size_t>(phase)], options_.step);
    phase_ = phase;
  }
  return {*memories_.rank(lane.rank).device, lane.front().name.c_str(), options_.step};
}

std::unique_ptr<DeviceGraph> DeviceIssuer::Capture(DeviceEntry& entry, int slot) {
  Device& device = memories_.device();
  const DeviceRange range(device, "capture", -1);
  device.BeginCapture(origin());
  try {
    EnqueueAll(entry, {.slot = slot});  // what is captured waits for nothing
  } catch (...) {
    device.AbandonCapture(origin());
    throw;
  }
  return device.EndCapture(origin());
}

// Every lane waits for the origin. The step parameters of a rank are copied before its first instruction.
void DeviceIssuer::Fork(DeviceEntry& entry) {
  lanes_.clear();
  recorded_.assign(entry.ranks.size(), {});
  memories_.device().Record(forked_.get(), origin());
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    DeviceRank& rank = entry.ranks[r];
    RankMemory& memory = memories_.rank(r);
    recorded_[r] = rank.of_copies;  // their streams have been waited for at the fork
    void* ready = nullptr;          // an event
    for (size_t s = 0; s < rank.lanes.size(); ++s) {
      if (rank.lanes[s].empty()) continue;
      void* const stream = StreamOf(r, s);
      lanes_.push_back({r, stream, {{&rank.lanes[s]}}});
      if (ready != nullptr) {
        memory.device->Wait(stream, ready);
        continue;
      }
      memory.device->Wait(stream, forked_.get());
      memory.device->Copy(memory.step.at(0), memory.host_step.at(0), memory.step.bytes(), stream);
      if (options_.timed) memory.device->Record(begin_[r].get(), stream);
      ready = joined_[r][s].get();
      memory.device->Record(ready, stream);
    }
  }
}

// The fetches of a rank are copied on a stream of its device that waits for all of its lanes.
void DeviceIssuer::Join(DeviceEntry& entry) {
  Device& first = memories_.device();
  for (size_t r = memories_.first(); r < memories_.last(); ++r) {
    Device& device = *memories_.rank(r).device;
    std::vector<size_t> used;
    for (size_t s = 0; s < entry.ranks[r].lanes.size(); ++s) {
      if (!entry.ranks[r].lanes[s].empty()) used.push_back(s);
    }
    // A rank that does nothing in this step has nothing to fetch from it.
    void* const last = used.empty() ? origin() : StreamOf(r, used[0]);
    for (size_t i = 1; i < used.size(); ++i) {
      device.Record(joined_[r][used[i]].get(), StreamOf(r, used[i]));
      device.Wait(last, joined_[r][used[i]].get());
    }
    for (const StagedFetch& fetch : entry.fetches) {
      if (fetch.rank != r) continue;
      device.Copy(entry.fetched.at(fetch.offset), memories_.Address(*fetch.buffer, r, options_.slot), fetch.buffer->bytes, last);
    }
    if (used.empty()) continue;
    device.Record(joined_[r][used[0]].get(), last);
    first.Wait(origin(), joined_[r][used[0]].get());
  }
}

// Issues in the order of the plan's list as long as nothing blocks.
void DeviceIssuer::IssueLanes(DeviceEntry& entry) {
  while (true) {
    bool moved = false, left = false;
    for (size_t begin = 0; begin < lanes_.size();) {
      size_t end = begin;
      while (end < lanes_.size() && lanes_[end].rank == lanes_[begin].rank) ++end;
      while (true) {
        order_.clear();
        for (size_t i = begin; i < end; ++i) {
          if (!lanes_[i].done()) order_.push_back(&lanes_[i]);
        }
        std::sort(order_.begin(), order_.end(), [](const Lane* a, const Lane* b) { return a->index() < b->index(); });
        if (std::none_of(order_.begin(), order_.end(), [&](Lane* lane) { return Advance(*lane, entry); })) {
          left = left || !order_.empty();
          break;
        }
        moved = true;
      }
      begin = end;
    }
    if (!left) return;
    if (!moved) AwaitConditions();
  }
}

bool DeviceIssuer::Advance(Lane& lane, DeviceEntry& entry) {
  const DeviceInstruction& front = lane.front();
  if (front.apart && front.turn != turn_) return false;
  const auto event = static_cast<size_t>(std::max(front.instruction->event, 0));
  DeviceRank& rank = entry.ranks[lane.rank];
  Device& device = *memories_.rank(lane.rank).device;
  groups_.NoteProgress();
  try {
    switch (front.instruction->kind) {
      case InstructionKind::kRecord:
        Begin(lane);
        device.Record(rank.events[event].get(), lane.stream);
        recorded_[lane.rank][event] = true;
        End(lane);
        return true;
      case InstructionKind::kWait:
        if (!recorded_[lane.rank][event]) return false;
        Begin(lane);
        if (!rank.of_copies[event]) device.Wait(lane.stream, rank.events[event].get());
        End(lane);
        return true;
      case InstructionKind::kCollective: return IssueCollective(lane);
      case InstructionKind::kSend:
      case InstructionKind::kRecv: return Transfer(lane);
      case InstructionKind::kIf:
      case InstructionKind::kLoop: return Decide(lane);
      case InstructionKind::kLaunch:
      case InstructionKind::kCopy: Enqueue(lane); return true;
    }
  } catch (const Error& error) {
    groups_.Explain(error);
    if (lane.done()) throw;
    RethrowAt(error, *lane.front().instruction);
  }
  return false;
}

void DeviceIssuer::Begin(Lane& lane) {
  Device& device = *memories_.rank(lane.rank).device;
  if (chaotic_) {
    const uint64_t drawn = random_();
    if (drawn % 4 == 0) device.Delay(static_cast<int64_t>(drawn / 4 % 100000), lane.stream);
  }
  if (!IsTimed(lane)) return;
  DeviceInstruction& front = lane.front();
  if (front.begin.get() == nullptr) front.begin = DeviceEvent(device, true), front.end = DeviceEvent(device, true);
  device.RecordTime(front.begin.get(), lane.stream);
}

void DeviceIssuer::End(Lane& lane) {
  if (IsTimed(lane)) memories_.rank(lane.rank).device->RecordTime(lane.front().end.get(), lane.stream);
  ++lane.frames.back().next;
  lane.frames.back().progress = Progress::kNew;
  while (lane.in_body() && lane.frames.back().ends()) lane.frames.pop_back();
}

void DeviceIssuer::Enqueue(Lane& lane) {
  DeviceInstruction& front = lane.front();
  if (options_.pieces && front.piece > 1) {
    // The first run loads what the kernels need, which a capture does not permit.
    if (front.piece_loaded) return EnqueuePiece(lane);
    front.piece_loaded = true;
  }
  const DeviceRange range = RangeOf(lane);
  LookAtReads(lane);
  Begin(lane);
  EnqueueWork(front, lane);
  LookAtWrites(lane);
  End(lane);
}

void DeviceIssuer::EnqueueWork(const DeviceInstruction& prepared, const Lane& lane) {
  const auto s = static_cast<size_t>(options_.slot);
  if (prepared.instruction->kind == InstructionKind::kCopy) {
    Device& device = *memories_.rank(lane.rank).device;
    if (prepared.keeps_state) {
      device.CopyState(prepared.outputs[s][0], prepared.inputs[s][0], prepared.bytes, lane.stream);
    } else {
      device.Copy(prepared.outputs[s][0], prepared.inputs[s][0], prepared.bytes, lane.stream);
    }
  } else {
    prepared.kernel->Run(prepared.inputs[s].data(), prepared.outputs[s].data(), prepared.scratch, lane.stream);
  }
}

NumericsLog::OnHost DeviceIssuer::OnHost(const Lane& lane) {
  return [this, &device = *memories_.rank(lane.rank).device, stream = lane.stream](const Buffer& buffer, const void* address) {
    looked_at_.resize(static_cast<size_t>(buffer.bytes));
    if (buffer.bytes > 0) device.Copy(looked_at_.data(), address, buffer.bytes, stream);
    groups_.Await(device, stream);
    return static_cast<const void*>(looked_at_.data());
  };
}

// What the stream still has to do comes first, and may end in an error of its own.
void DeviceIssuer::LookAtReads(Lane& lane) {
  if (options_.numerics == nullptr) return;
  lane.reads = NumericsLog::Reads(SiteOf(lane), lane.front().inputs[static_cast<size_t>(options_.slot)], OnHost(lane));
}

void DeviceIssuer::LookAtWrites(Lane& lane) {
  if (options_.numerics == nullptr) return;
  options_.numerics->Note(SiteOf(lane), std::move(lane.reads), lane.front().outputs[static_cast<size_t>(options_.slot)], OnHost(lane));
}

void DeviceIssuer::EnqueuePiece(Lane& lane) {
  Device& device = *memories_.rank(lane.rank).device;
  DeviceInstruction& head = lane.front();
  const DeviceRange range = RangeOf(lane);
  std::unique_ptr<DeviceGraph>& graph = head.piece_graphs[head.piece_in_slots ? static_cast<size_t>(options_.slot) : 0];
  Frame& frame = lane.frames.back();
  if (graph == nullptr) {
    device.BeginCapture(lane.stream);
    try {
      for (size_t k = 0; k < head.piece; ++k) EnqueueWork((*frame.instructions)[frame.next + k], lane);
    } catch (...) {
      device.AbandonCapture(lane.stream);
      throw;
    }
    graph = device.EndCapture(lane.stream);
  }
  graph->Launch(lane.stream);
  frame.next += head.piece - 1;
  End(lane);
}

// Runs the collective when the last member of this process has arrived.
bool DeviceIssuer::IssueCollective(Lane& lane) {
  const DeviceInstruction& mine = lane.front();
  std::vector<Lane*> members;
  for (int member : groups_.RanksOf(mine.group)) {
    if (!memories_.holds(static_cast<size_t>(member))) continue;
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& other) {
      return other.rank == static_cast<size_t>(member) && !other.done() && other.front().group == mine.group &&
             other.front().instruction->kind == InstructionKind::kCollective && other.front().instruction->tag == mine.instruction->tag;
    });
    if (found == lanes_.end()) return false;
    members.push_back(&*found);
  }
  DeviceGroup& group = groups_.Of(mine.group);
  const DeviceRange range = RangeOf(lane);
  std::vector<std::vector<DeviceGroup::Operand>> operands;
  std::vector<void*> streams;
  for (Lane* member : members) {
    LookAtReads(*member);
    Begin(*member);
    operands.push_back(member->front().operands[static_cast<size_t>(options_.slot)]);
    streams.push_back(member->stream);
  }
  switch (mine.instruction->collective) {
    case Collective::kAllReduceSum: group.AllReduceSum(operands, streams); break;
    case Collective::kBroadcast: group.Broadcast(mine.instruction->root, operands, streams); break;
    case Collective::kReduceScatterSum: group.ReduceScatterSum(operands, streams); break;
    case Collective::kAllGather: group.AllGather(operands, streams); break;
    case Collective::kReduceSum: group.ReduceSum(operands, streams); break;
  }
  if (mine.apart) ++turn_;
  for (Lane* member : members) LookAtWrites(*member);
  for (Lane* member : members) End(*member);
  return true;
}

// Runs the transfer when both sides have arrived: the receiver copies after the sender's event, and the sender's stream waits for the end
// of the copy.
bool DeviceIssuer::Transfer(Lane& lane) {
  const DeviceInstruction& mine = lane.front();
  const bool sends = mine.instruction->kind == InstructionKind::kSend;
  if (!memories_.holds(static_cast<size_t>(mine.peer))) {
    TransferOver(lane);
    return true;
  }
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& other) {
    return other.rank == static_cast<size_t>(mine.peer) && !other.done() && other.front().peer == static_cast<int>(lane.rank) &&
           other.front().instruction->kind == (sends ? InstructionKind::kRecv : InstructionKind::kSend) &&
           other.front().instruction->tag == mine.instruction->tag;
  });
  if (found == lanes_.end()) return false;
  Lane& from = sends ? lane : *found;
  Lane& to = sends ? *found : lane;
  Device& sender = *memories_.rank(from.rank).device;
  Device& receiver = *memories_.rank(to.rank).device;
  auto& [sent, taken] = transfers_[{from.rank, to.rank}];
  if (sent.get() == nullptr) sent = DeviceEvent(sender, false), taken = DeviceEvent(receiver, false);
  LookAtReads(from);
  LookAtReads(to);
  const DeviceRange range = RangeOf(lane);
  Begin(from);
  Begin(to);
  sender.Record(sent.get(), from.stream);
  receiver.Wait(to.stream, sent.get());
  const DeviceInstruction& put = to.front();
  const auto s = static_cast<size_t>(options_.slot);
  receiver.Copy(put.outputs[s][0], from.front().inputs[s][0], put.bytes, to.stream);
  receiver.Record(taken.get(), to.stream);
  sender.Wait(from.stream, taken.get());
  LookAtWrites(from);
  LookAtWrites(to);
  End(from);
  End(to);
  return true;
}

void DeviceIssuer::TransferOver(Lane& lane) {
  const DeviceInstruction& mine = lane.front();
  const auto s = static_cast<size_t>(options_.slot), peer = static_cast<size_t>(mine.peer);
  const bool sends = mine.instruction->kind == InstructionKind::kSend;
  LookAtReads(lane);
  Begin(lane);
  DeviceGroup::Operand operand{.dtype = DType::kUint8, .read_bytes = mine.bytes, .write_bytes = mine.bytes};
  // The root of a broadcast also passes its own buffer as output, in place.
  operand.write = sends ? const_cast<void*>(mine.inputs[s][0]) : mine.outputs[s][0];
  operand.read = operand.write;
  const std::vector<DeviceGroup::Operand> operands[] = {{operand}};
  const DeviceRange range = RangeOf(lane);
  DeviceGroup& group = sends ? groups_.Between(lane.rank, peer) : groups_.Between(peer, lane.rank);
  group.Broadcast(0, operands, std::span<void* const>(&lane.stream, 1));
  ++turn_;
  LookAtWrites(lane);
  End(lane);
}

}  // namespace gradloom

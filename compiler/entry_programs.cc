#include "compiler/entry_programs.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "compiler/device_passes.h"
#include "compiler/passes/devices/gather_tail.h"
#include "compiler/passes/devices/shard_updates.h"
#include "compiler/passes/memory/place_state.h"
#include "compiler/placement.h"

namespace gradloom {
namespace {

// `fetches`: buffers in the rank's program.
void AddRank(RankBinding rank, const std::vector<int>& fetches, Entry& entry) {
  if (entry.ranks.empty()) {
    for (size_t i = 0; i < entry.fetches.size(); ++i) entry.fetches[i].buffer = fetches[i];
  } else if (rank.program != entry.ranks[0].program) {
    rank.fetches = fetches;
  }
  entry.ranks.push_back(std::move(rank));
}

// Gives the buffers of feeds the names under which they are fed. `names`: by feed, of those whose values have other names.
void NameFeeds(const std::map<int, std::string>& names, Program& program) {
  for (Buffer& buffer : program.buffers) {
    if (const auto named = names.find(buffer.feed); buffer.arena == Arena::kFeed && named != names.end()) buffer.name = named->second;
  }
  for (Instruction& instruction : program.instructions) {
    for (Program& body : instruction.bodies) NameFeeds(names, body);
  }
}

}  // namespace

void EntryPrograms::Add(const PassContext& whole, const Replicas& replicas, Entry& entry) {
  if (Gathers(options_.recipe)) {
    AddGathered(whole, replicas, entry);
  } else {
    options_.recipe.ShardsOptimizer() ? AddSharded(whole, replicas, entry) : AddReplicas(whole, replicas, entry);
  }
  if (plan_.entries.empty()) {
    for (const RankBinding& rank : entry.ranks) report_.step_flops += flops_.at(rank.program);
  }
  // The replicas of a stage all-reduce their partial sums of gradients.
  const bool sums =
      !replicas.divided && !options_.recipe.ShardsOptimizer() && (whole.kind == EntryKind::kUpdate || whole.kind == EntryKind::kLastBatch);
  for (size_t r = 0; sums && plan_.HasPartialState() && r < entry.ranks.size(); ++r)
    entry.ranks[r].groups = GroupOf(static_cast<int>(r) % stages_.count);
}

void EntryPrograms::AddReplicas(const PassContext& whole, const Replicas& replicas, Entry& entry) {
  std::map<int64_t, Programs> made;  // by samples
  for (const BatchShard& shard : replicas.shards) {
    if (!made.contains(shard.length)) made.emplace(shard.length, OfReplica(whole, replicas, shard.length));
    if (!stops()) BindReplica(made.at(shard.length), shard, replicas.divided, entry);
  }
}

// Each device is a place of its own, with a program that updates its share of the parameters.
void EntryPrograms::AddSharded(const PassContext& whole, const Replicas& replicas, Entry& entry) {
  // The first device has samples. One without them lacks readers of gradients, but must come to the same collectives.
  const Graph& first = *replicas.graphs.at(replicas.shards.front().length);
  ShareOutStates(first, plan_, options_.recipe.devices, holders_);
  gradient_owners_ = FindGradientOwners(first, holders_);
  for (size_t r = 0; r < replicas.shards.size(); ++r) {
    const BatchShard& shard = replicas.shards[r];
    const std::unique_ptr<Graph> own = replicas.graphs.at(shard.length)->Clone();
    Programs made;
    AddStage(whole, replicas, *own, static_cast<int>(r), shard.length, replicas.divided, made);
    if (stops()) return;  // the others differ in which parameters they update
    RankBinding rank{.program = made.programs[0], .shard_start = shard.start, .shard_length = shard.length};
    if (!IsForwardOnly(whole.kind) || replicas.divided) rank.groups = GroupOf(0);
    AddRank(std::move(rank), made.fetches[0], entry);
  }
}

// Each device runs the trunk for its samples. One of them also runs the tail, and has a place of its own.
void EntryPrograms::AddGathered(const PassContext& whole, const Replicas& replicas, Entry& entry) {
  const std::vector<BatchShard>& shards = replicas.shards;
  const auto tail = static_cast<size_t>(options_.recipe.gather_to);
  if (plan_.entries.empty() && !options_.recipe.tail.empty()) ReportTail(whole.graph);
  for (const auto& [state, stage] : stages_.of_state)
    holders_[state] = stage == kTrunk ? std::vector<int>{kTrunk, kTail} : std::vector<int>{kTail};
  std::map<std::pair<int64_t, bool>, Programs> made;  // by number of samples, and whether it has the tail
  for (size_t r = 0; r < shards.size(); ++r) {
    const std::pair key(shards[r].length, r == tail);
    if (!made.contains(key)) {
      const std::unique_ptr<Graph> part = TailPart(*replicas.graphs.at(shards[r].length), rules_, shards, r, tail);
      AddStage(whole, replicas, *part, r == tail ? kTail : kTrunk, shards[r].length, true, made[key]);
    }
    if (stops()) continue;
    const Programs& mine = made.at(key);
    RankBinding rank{.program = mine.programs[0], .shard_start = shards[r].start, .shard_length = shards[r].length};
    if (replicas.divided) rank.groups = GroupOf(kTrunk);
    if (r != tail) rank.peers = {static_cast<int>(tail)};
    for (int peer = 0; r == tail && peer < static_cast<int>(shards.size()); ++peer) rank.peers.push_back(peer);
    AddRank(std::move(rank), mine.fetches[0], entry);
  }
}

// Of a replica that has this number of samples.
EntryPrograms::Programs EntryPrograms::OfReplica(const PassContext& whole, const Replicas& replicas, int64_t samples) {
  Graph& graph = *replicas.graphs.at(samples);
  Programs made;
  if (stages_.count == 1) {
    AddStage(whole, replicas, graph, 0, samples, replicas.divided, made);
    return made;
  }
  for (const auto& [state, stage] : stages_.of_state) holders_[state] = {stage};
  SplitStages(graph, stages_, [&](int stage, Graph& own) { AddStage(whole, replicas, own, stage, samples, true, made); });
  return made;
}

// Adds the program of the graph of a stage, which is in this place. `divided`: whether other devices compute parts of the batch or of the
// model.
void EntryPrograms::AddStage(const PassContext& whole, const Replicas& replicas, Graph& graph, int place, int64_t samples, bool divided,
                             Programs& made) {
  // The graph of a single stage may be the whole graph, whose outputs the passes change.
  const std::vector<ValueId> all = whole.graph.outputs;
  std::map<int, std::string> feed_names;
  const std::vector<ValueId> feeds = FeedsOf(whole.graph);
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (const auto named = whole.feed_names.find(feeds[i]); named != whole.feed_names.end())
      feed_names.emplace(static_cast<int>(i), named->second);
  }
  PassContext device{.graph = graph, .rules = rules_, .recipe = options_.recipe, .kind = whole.kind, .plan = plan_, .batch = samples};
  device.divided = divided;
  device.place = place;
  device.holders = &holders_;
  device.gradient_owners = &gradient_owners_;
  // A device with its own memory cannot read feeds in place.
  device.copies = {.all = options_.recipe.copy_inputs || options_.recipe.device != DeviceKind::kCpu, .feeds = replicas.non_contiguous};
  device.fetch_names = whole.fetch_names;
  // Passes replace the outputs.
  std::map<ValueId, size_t> position;
  for (size_t i = 0; i < graph.outputs.size(); ++i) position.emplace(graph.outputs[i], i);
  PassControl control = options_.control;
  // Where all devices compute the trunk of one sample, only the one with the tail needs the results of its last layer. Gradients that keep
  // what that layer computed are other kernels, and all devices must have the same bits of them.
  if (Gathers(options_.recipe) && !replicas.divided) control.disabled.insert(control.disabled.end(), {"keep_steps", "keep_log_sums"});
  RunDevicePasses(device, control);
  if (stops()) return;
  Count(device);
  NameFeeds(feed_names, device.program);
  std::vector<int>& buffers = made.fetches.emplace_back();
  for (ValueId id : all) {
    const auto at = position.find(id);
    buffers.push_back(at == position.end() ? -1 : device.output_buffers[at->second]);
  }
  made.programs.push_back(static_cast<int>(plan_.programs.size()));
  plan_.programs.push_back(std::move(device.program));
}

// Adds the ranks of the next replica, which has this shard of the batch.
void EntryPrograms::BindReplica(const Programs& made, const BatchShard& shard, bool divided, Entry& entry) {
  const auto first = static_cast<int>(entry.ranks.size());
  for (int stage = 0; stage < stages_.count; ++stage) {
    RankBinding rank{.program = made.programs[static_cast<size_t>(stage)], .shard_start = shard.start, .shard_length = shard.length};
    if (divided) rank.groups = GroupOf(stage);
    for (int peer = 0; stages_.count > 1 && peer < stages_.count; ++peer) rank.peers.push_back(first + peer);
    AddRank(std::move(rank), made.fetches[static_cast<size_t>(stage)], entry);
  }
}

// The group of the devices that hold a stage, one per replica.
std::vector<int> EntryPrograms::GroupOf(int stage) {
  if (plan_.groups.empty()) {
    const int devices = options_.recipe.devices, stages = devices / CopiesOf(options_.recipe, stages_);
    plan_.groups.resize(static_cast<size_t>(stages));
    for (int i = 0; i < devices; ++i) plan_.groups[static_cast<size_t>(i % stages)].ranks.push_back(i);
  }
  return {stage};
}

void EntryPrograms::ReportTail(const Graph& graph) {
  CompileReport::Tail& tail = report_.tail.emplace();
  double all_flops = 0, tail_flops = 0;
  for (const Node& node : graph.nodes) {
    if (IsBoundary(node)) continue;
    const bool inside = node.device == kTail, forward = node.phase == Phase::kForward;
    const double flops = CostOf(graph, node).flops;
    tail.nodes += inside && forward ? 1 : 0;
    tail.all_nodes += forward ? 1 : 0;
    tail_flops += inside ? flops : 0;
    all_flops += flops;
  }
  tail.flops_share = all_flops > 0 ? tail_flops / all_flops : 1;
}

// Adds a program, which is not in the plan yet, to the report.
void EntryPrograms::Count(const PassContext& context) {
  if (context.recomputed.bytes > report_.recomputed.bytes) report_.recomputed = context.recomputed;
  report_.keeps_settled |= context.keeps_settled;
  if (plan_.entries.empty()) {
    double& flops = flops_[static_cast<int>(plan_.programs.size())];
    for (const Node& node : context.graph.nodes) flops += CostOf(context.graph, node).flops;
    report_.waits += static_cast<int64_t>(context.scheduled.waits.size());
    report_.waits_bound += context.scheduled.waits_bound;
  }
  if (context.scheduled.transient_bytes >= report_.transient_bytes) {
    report_.transient_bytes = context.scheduled.transient_bytes;
    report_.live_bytes_bound = context.scheduled.live_bytes_bound;
  }
}

}  // namespace gradloom

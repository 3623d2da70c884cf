#include "compiler/passes/memory/plan_memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/memory/pack_intervals.h"
#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/schedule/node_order.h"
#include "compiler/passes/schedule/refusals.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// A range of bytes, and the values that share it.
struct Storage {
  int first = 0;  // the first node that writes it
  int last = 0;   // the last node in list order that reads or writes it
  Reach reach;    // all nodes that do
  int64_t bytes = 0;
  std::optional<Placement> fixed;  // outside the transient arena
};

class Planner {
 public:
  // `whole`: null for a body.
  Planner(const Graph& graph, const Plan* whole, ProgramPlan& plan, const std::vector<bool>& kept)
      : graph_(graph),
        whole_(whole),
        plan_(plan),
        kept_(kept),
        order_(graph, plan),
        storage_of_(static_cast<size_t>(graph.num_values()), -1) {
    refusing_ = Nothing();
    while (first_ < static_cast<int>(graph_.nodes.size()) && IsView(graph_.nodes[static_cast<size_t>(first_)])) ++first_;
    if (whole_ != nullptr) FindRefusals();
    FindReads();
    FindBroadcasts();
    PlaceFixed();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) PlaceOutputs(static_cast<int>(i));
    CopyLateStates();
  }

  // Returns the transient storages, in the order of storages_, then the scratch memory of each node that has some.
  std::vector<PackedInterval> Intervals() const {
    std::vector<PackedInterval> intervals;
    for (const Storage& storage : storages_) {
      if (!storage.fixed) intervals.push_back({storage.bytes, storage.first, storage.last, 0});
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int64_t scratch = plan_.kernels[i].scratch_bytes;
      if (scratch > 0) intervals.push_back({scratch, static_cast<int>(i), static_cast<int>(i), 0});
    }
    return intervals;
  }

  void Pack() {
    std::vector<PackedInterval> intervals = Intervals();
    if (order_.num_streams() > 1) {
      const std::vector<Reach> reaches = Reaches();
      for (size_t i = 0; i < intervals.size(); ++i) {
        intervals[i].stream = order_.stream(intervals[i].first);
        intervals[i].over = order_.FirstAfter(reaches[i]);
      }
    }
    plan_.transient_bytes = PackIntervals(intervals);
    auto next = intervals.begin();
    for (Storage& storage : storages_) {
      if (!storage.fixed) storage.fixed = Placement{Arena::kTransient, (next++)->offset, -1};
    }
    plan_.scratch_offset.assign(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (plan_.kernels[i].scratch_bytes > 0) plan_.scratch_offset[i] = (next++)->offset;
    }
    plan_.placement.assign(storage_of_.size(), {});
    for (size_t id = 0; id < storage_of_.size(); ++id) {
      if (storage_of_[id] >= 0) plan_.placement[id] = *storages_[static_cast<size_t>(storage_of_[id])].fixed;
    }
  }

 private:
  // Bytes in memory, including the padding of the layout.
  int64_t BytesOf(ValueId id) const {
    const Value& value = graph_.value(id);
    return plan_.layout(id).elements(value.shape) * DTypeBytes(value.dtype);
  }
  int storage_of(ValueId id) const { return storage_of_[static_cast<size_t>(id)]; }
  Storage& storage_at(ValueId id) { return storages_[static_cast<size_t>(storage_of(id))]; }
  bool is_kept(ValueId id) const { return !kept_.empty() && kept_[static_cast<size_t>(id)]; }
  int last_read(ValueId id) const { return last_read_[static_cast<size_t>(id)]; }
  const Reach& reads(ValueId id) const { return reads_[static_cast<size_t>(id)]; }

  // Returns the uses of each of Intervals(), in the same order.
  std::vector<Reach> Reaches() const {
    std::vector<Reach> reaches;
    for (const Storage& storage : storages_) {
      if (!storage.fixed) reaches.push_back(storage.reach);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (plan_.kernels[i].scratch_bytes == 0) continue;
      reaches.push_back(Nothing());
      order_.Extend(reaches.back(), static_cast<int>(i));
    }
    return reaches;
  }

  Reach Nothing() const { return Reach(static_cast<size_t>(order_.num_streams()), 0); }
  Reach ToTheEnd() const { return Reach(static_cast<size_t>(order_.num_streams()), kForever); }
  static void Join(Reach& reach, const Reach& other) {
    for (size_t s = 0; s < reach.size(); ++s) reach[s] = std::max(reach[s], other[s]);
  }

  // Finds the readers of each value or of views of it, and the last reader in list order; a fetched value is read until the end of the
  // step, and a kept one in the next.
  void FindReads() {
    last_read_.assign(static_cast<size_t>(graph_.num_values()), -1);
    reads_.assign(static_cast<size_t>(graph_.num_values()), Nothing());
    const auto extend = [&](ValueId id, int step) {
      int& last = last_read_[static_cast<size_t>(id)];
      last = std::max(last, step);
    };
    const auto forever = [&](ValueId id) {
      extend(id, static_cast<int>(graph_.nodes.size()));
      reads_[static_cast<size_t>(id)] = ToTheEnd();
    };
    for (ValueId id : graph_.outputs) forever(id);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      if (is_kept(id)) forever(id);
    }
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const bool view = IsView(node);
      ForEachUse(node, [&](ValueId id) {
        extend(id, static_cast<int>(i));
        if (!view) order_.Extend(reads_[static_cast<size_t>(id)], static_cast<int>(i));
      });
      if (!view) continue;
      extend(node.inputs[0], last_read(node.outputs[0]));
      Join(reads_[static_cast<size_t>(node.inputs[0])], reads(node.outputs[0]));
    }
  }

  void FindBroadcasts() {
    broadcast_.assign(static_cast<size_t>(graph_.num_values()), false);
    for (const Node& node : graph_.nodes) {
      if (IsBroadcast(node)) broadcast_[static_cast<size_t>(node.inputs[0])] = true;
    }
  }

  void NewStorage(ValueId id, int step, std::optional<Placement> fixed) {
    storages_.push_back({.first = step, .last = step, .reach = Nothing(), .bytes = BytesOf(id), .fixed = std::move(fixed)});
    Join(id, static_cast<int>(storages_.size()) - 1, step);
  }

  // Puts a value that node `step` produces into a storage.
  void Join(ValueId id, int storage, int step) {
    storage_of_[static_cast<size_t>(id)] = storage;
    Storage& s = storages_[static_cast<size_t>(storage)];
    s.last = std::max({s.last, step, last_read(id)});
    Join(s.reach, reads(id));
    const bool made_here = static_cast<size_t>(step) < graph_.nodes.size() && !IsView(graph_.nodes[static_cast<size_t>(step)]) && !s.fixed;
    if (made_here) order_.Extend(s.reach, step);
  }

  // Inputs, constants, parameters and states already have their placement.
  void PlaceFixed() {
    if (whole_ == nullptr) return PlaceOperands();
    std::map<std::string, int64_t> constant_offset, state_offset;
    for (const Constant& constant : whole_->constants) constant_offset.emplace(constant.name, constant.offset);
    for (const StateTensor& state : whole_->state) state_offset.emplace(state.name, state.offset);
    const std::map<std::string, int64_t> step_offset = {{kStepLr, whole_->step.lr},       {kStepLr64, whole_->step.lr64},
                                                        {kStepNumber, whole_->step.step}, {kStepBatch, whole_->step.batch},
                                                        {kStepSeed, whole_->step.seed},   {kStepFirst, whole_->step.first}};
    int feeds = 0;
    for (ValueId id : graph_.inputs) {
      const auto step = step_offset.find(graph_.value(id).name);
      NewStorage(id, 0, step != step_offset.end() ? Placement{Arena::kStep, step->second, -1} : Placement{Arena::kFeed, 0, feeds++});
    }
    for (const Value& value : graph_.values()) {
      if (value.role == Role::kConst && constant_offset.contains(value.name)) {
        NewStorage(value.id, 0, Placement{Arena::kConstants, constant_offset.at(value.name), -1});
      } else if (value.next_of == kNoValue && (value.role == Role::kParam || value.role == Role::kState) &&
                 state_offset.contains(StateName(value))) {
        NewStorage(value.id, 0, Placement{Arena::kState, state_offset.at(StateName(value)), -1});
      }
    }
  }

  void PlaceOperands() {
    int operand = 0;
    for (ValueId id : graph_.inputs) NewStorage(id, 0, Placement{Arena::kFeed, 0, operand++});
    for (ValueId id : graph_.outputs) results_.emplace(id, operand++);
  }

  // The result of a branch is written directly to the output of its node. A loop-carried value has its place as the next value of the one
  // that the iteration began with.
  bool PlaceResult(ValueId id, int i) {
    if (whole_ != nullptr || graph_.value(id).next_of != kNoValue) return false;
    const auto result = results_.find(id);
    if (result == results_.end()) return false;
    NewStorage(id, i, Placement{Arena::kFeed, 0, result->second});
    return true;
  }

  void PlaceOutputs(int i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    ForEachUse(node, [&](ValueId id) {
      if (storage_of(id) < 0) {
        throw Error(ErrorCode::kInternal, "value '" + Escaped(graph_.value(id).name) + "' is read before it is produced", Describe(node));
      }
    });
    if (IsView(node)) {
      Join(node.outputs[0], storage_of(node.inputs[0]), i);
      return;
    }
    read_here_.clear();
    written_here_.clear();
    ForEachUse(node, [&](ValueId id) { read_here_.push_back(storage_of(id)); });
    std::sort(read_here_.begin(), read_here_.end());
    for (int k = 0; k < static_cast<int>(node.outputs.size()); ++k) {
      const ValueId id = node.outputs[static_cast<size_t>(k)];
      if (id == kNoValue) continue;
      const bool placed = PlaceInSlot(id, i) || PlaceResult(id, i) || PlaceInState(id, k, i) || ReuseInput(id, k, i);
      if (!placed) NewStorage(id, i, std::nullopt);
      written_here_.insert(storage_of(id));
      if (is_kept(id)) storage_at(id).first = first_;
    }
  }

  // A copied input has its own place in the slot.
  bool PlaceInSlot(ValueId id, int i) {
    if (!IsInputCopy(graph_.nodes[static_cast<size_t>(i)])) return false;
    NewStorage(id, i, Placement{Arena::kInput, plan_.input_bytes, -1});
    plan_.input_bytes = AlignUp(plan_.input_bytes + BytesOf(id), kAlignmentBytes);
    return true;
  }

  // A next value is written directly to its state's place if every read of the old value has ended, or is by this node through an operand
  // that the output may alias, and if nothing from this node on can make the step fail.
  bool PlaceInState(ValueId id, int k, int i) {
    const ValueId old = graph_.value(id).next_of;
    if (old == kNoValue || storage_of(old) < 0 || BytesOf(old) != BytesOf(id)) return false;
    if (!IsPastRefusals(i) || !MayKeepState(i)) return false;
    if (!order_.AllBefore(reads(old), i, true) || (last_read(old) == i && !MayOverwrite(id, k, old, i))) return false;
    Join(id, storage_of(old), i);
    return true;
  }

  // Nodes of a body write to the operands of its instruction, and it is the instruction that may refuse.
  void FindRefusals() {
    const std::vector<int> refusing = RefusingNodes(graph_, &order_);
    for (int node : refusing) order_.Extend(refusing_, node);
    refuses_ = !refusing.empty();
    has_collectives_ = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), IsCollective);
    collective_after_refusals_ = FirstCollectiveAfter(graph_, refusing);
  }

  // Whether nothing from node i on can make the step fail. Other devices may refuse what this one has accepted, and tell so with the next
  // collective; an update comes after that collective with its gradient.
  bool IsPastRefusals(int i) const {
    if (has_collectives_ && graph_.nodes[static_cast<size_t>(i)].phase != Phase::kUpdate) return false;
    if (collective_after_refusals_ >= 0 && !order_.Before(collective_after_refusals_, i)) return false;
    return order_.AllBefore(refusing_, i, false);
  }

  // A device continues after a kernel that has refused the batch. In that case only kernels that check for a refusal, and the copies at the
  // end of a program, may overwrite state.
  bool MayKeepState(int i) const {
    if (plan_.device == DeviceKind::kCpu || (!refuses_ && !has_collectives_)) return true;
    // Of a parameter, which the device that broadcasts it has kept.
    if (IsBroadcast(graph_.nodes[static_cast<size_t>(i)])) return true;
    const KernelRow* const row = plan_.kernels[static_cast<size_t>(i)].row;
    return row != nullptr && row->preserves_state_on_refusal;
  }

  // The output can take the place of an input whose last reader is this node.
  bool ReuseInput(ValueId id, int k, int i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    for (const Aliasing& alias : MayAlias(k, i)) {
      if (alias.output != k || alias.input >= static_cast<int>(node.inputs.size())) continue;
      const ValueId input = node.inputs[static_cast<size_t>(alias.input)];
      if (input == kNoValue || storage_at(input).fixed || !order_.AllBefore(storage_at(input).reach, i, true) ||
          !MayOverwrite(id, k, input, i)) {
        continue;
      }
      Join(id, storage_of(input), i);
      return true;
    }
    return false;
  }

  // Returns which outputs of node i, output k among them, may alias which inputs. A collective, which may have any number of operands, sums
  // each in place.
  std::span<const Aliasing> MayAlias(int k, int i) {
    const KernelRow* row = plan_.kernels[static_cast<size_t>(i)].row;
    if (row != nullptr) return row->may_alias;
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    if (!node.regions.empty() && node.op != "Loop") return {};
    // A loop overwrites its initial values; a branch may not alias.
    operand_ = {.output = k, .input = node.regions.empty() ? k : k + 1};
    return {&operand_, 1};
  }

  // Whether the kernel of node i may write output k over this input, no other operand of the node is there, and both have the same size.
  bool MayOverwrite(ValueId output, int k, ValueId input, int i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    const int storage = storage_of(input);
    const auto [first, last] = std::equal_range(read_here_.begin(), read_here_.end(), storage);
    if (last - first != 1 || written_here_.contains(storage)) return false;
    if (storages_[static_cast<size_t>(storage)].bytes != BytesOf(output)) return false;
    for (const Aliasing& alias : MayAlias(k, i)) {
      if (alias.output != k || alias.input >= static_cast<int>(node.inputs.size())) continue;
      if (node.inputs[static_cast<size_t>(alias.input)] == input) return true;
    }
    return false;
  }

  void CopyLateStates() {
    int step = static_cast<int>(graph_.nodes.size());
    for (const Value& value : graph_.values()) {
      if (value.next_of == kNoValue || storage_of(value.id) < 0 || storage_of(value.id) == storage_of(value.next_of)) continue;
      if (broadcast_[static_cast<size_t>(value.id)]) continue;  // its result is the next value, too
      plan_.copies.push_back({value.id, value.next_of});
      Storage& storage = storage_at(value.id);
      storage.last = std::max(storage.last, step++);
      storage.reach = ToTheEnd();
    }
  }

  const Graph& graph_;
  const Plan* whole_;
  ProgramPlan& plan_;
  const std::vector<bool>& kept_;
  const NodeOrder order_;
  int first_ = 0;                       // the first node that is not a view
  Reach refusing_;                      // nodes that may make the step fail; none in a body
  bool refuses_ = false;                // whether there are such nodes
  bool has_collectives_ = false;        // whether there are collectives
  int collective_after_refusals_ = -1;  // the first collective after all nodes that may refuse
  std::vector<int> storage_of_;         // by value id; -1: not placed yet
  std::vector<int> last_read_;          // by value id; -1: never
  std::vector<bool> broadcast_;         // by value id
  std::vector<Reach> reads_;            // by value id
  std::vector<Storage> storages_;
  std::vector<int> read_here_;      // the storages of the inputs of the node that is placed, ascending
  std::set<int> written_here_;      // those of its outputs so far
  std::map<ValueId, int> results_;  // of a body: as operands of its node
  Aliasing operand_;                // MayAlias of a collective or a loop
};

void PlanAll(const Graph& graph, const Plan* whole, ProgramPlan& plan, const std::vector<bool>& kept) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    int64_t& scratch = plan.kernels[i].scratch_bytes;
    for (size_t r = 0; r < graph.nodes[i].regions.size(); ++r) {
      PlanAll(*graph.nodes[i].regions[r].body, nullptr, plan.bodies[i][r], {});
      scratch = std::max(scratch, plan.bodies[i][r].transient_bytes);
    }
  }
  plan.copies.clear();
  plan.input_bytes = 0;
  Planner planner(graph, whole, plan, kept);
  plan.live_bytes_bound = PackingBound(planner.Intervals());
  planner.Pack();
}

}  // namespace

void PlanMemory(const Graph& graph, const Plan& whole, ProgramPlan& plan, const std::vector<bool>& kept) {
  PlanAll(graph, &whole, plan, kept);
}

}  // namespace gradloom

// From the graphs of an entry to its programs: the second half of a compilation. Private to this directory.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "compiler/compile.h"
#include "compiler/passes/devices/replicate_data.h"
#include "compiler/passes/memory/place_state.h"

namespace gradloom {

// The replicas of an entry. Each computes a shard of the batch, or all of it if the batch is not divided.
struct Replicas {
  std::map<int64_t, Graph*> graphs;  // by the replica's number of samples
  std::vector<BatchShard> shards;    // one per replica
  bool divided = false;
  std::set<ValueId> non_contiguous;  // feeds in which a replica's samples are not contiguous
};

// Cuts the graph of a replica for its devices, runs the passes of a device on each part, and binds the entry's ranks to the programs.
class EntryPrograms {
 public:
  // All arguments must outlive the object. `stages`: as the passes of the batch leave them. `plan` gets the programs and groups, `report`
  // the numbers of the first entry and of the largest program.
  EntryPrograms(const CompileOptions& options, const TypeRules& rules, const Stages& stages, Plan& plan, CompileReport& report)
      : options_(options), rules_(rules), stages_(stages), plan_(plan), report_(report) {}

  // Adds the programs that the plan needs for the entry, and the entry's ranks, replica by replica. `whole`: the context after the passes
  // of the batch; those of a device change its graph if it is that of a replica. If the control stops before there are programs, nothing is
  // added.
  void Add(const PassContext& whole, const Replicas& replicas, Entry& entry);

 private:
  // The programs of a replica, by stage, and the buffers of the whole graph's outputs in each; -1 for outputs of other stages.
  struct Programs {
    std::vector<int> programs;
    std::vector<std::vector<int>> fetches;
  };

  bool stops() const { return !options_.control.stop_after.empty(); }
  void AddReplicas(const PassContext& whole, const Replicas& replicas, Entry& entry);
  void AddSharded(const PassContext& whole, const Replicas& replicas, Entry& entry);
  void AddGathered(const PassContext& whole, const Replicas& replicas, Entry& entry);
  Programs OfReplica(const PassContext& whole, const Replicas& replicas, int64_t samples);
  void AddStage(const PassContext& whole, const Replicas& replicas, Graph& graph, int place, int64_t samples, bool divided, Programs& made);
  void BindReplica(const Programs& made, const BatchShard& shard, bool divided, Entry& entry);
  std::vector<int> GroupOf(int stage);
  void ReportTail(const Graph& graph);
  void Count(const PassContext& context);

  const CompileOptions& options_;
  const TypeRules& rules_;
  const Stages& stages_;
  Plan& plan_;
  CompileReport& report_;
  StateHolders holders_;
  GradientOwners gradient_owners_;
  std::map<int, double> flops_;  // by program of the first entry
};

}  // namespace gradloom

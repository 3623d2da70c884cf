// Data parallelism within branches and loops: the part of replicate_data that looks into their bodies.
//
// Devices that share a batch have to decide alike: what a branch or a loop goes by is the same on all of them. Its bodies may then see
// samples. Sums over samples leave a body in parts, as they leave any operator; no devices meet within one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/sharding.h"
#include "compiler/passes/batch_dependence.h"

namespace gradloom {

class ReplicatedBody;

// The bodies of one gradloom.If or gradloom.Loop.
class ReplicatedBodies {
 public:
  // The node is at this position of the graph that `around` is about. All must outlive this.
  ReplicatedBodies(const Node& node, size_t position, const BatchDependence& around, int64_t batch, const TypeRules& rules);
  ReplicatedBodies(ReplicatedBodies&&) noexcept;
  ~ReplicatedBodies();

  // Answers the query for the node. Throws Error(kUnsupported) naming the node of a body that stands in the way.
  void Ask(ShardQuery& query);

  // Makes the node one over so many samples; appends what it reads in place of its operands.
  void ToDevice(Node& node, GraphBuilder& builder, int64_t samples) const;

 private:
  std::vector<std::vector<Shard>> Walk(ShardQuery& query, std::vector<Shard>& inputs);

  const bool loop_;
  const int64_t batch_;
  std::vector<ReplicatedBody> bodies_;
  std::vector<bool> start_apart_;                // by what goes round: it begins the same everywhere, and is a sum over devices then
  std::vector<std::vector<bool>> result_apart_;  // by body and output: the same of one that is whole
};

// Whether the node draws random numbers.
bool DrawsRandom(const Node& node);

// Lets a node of `graph` that draws numbers for `samples` of the `batch` draw those of their places in the whole batch. `whole`: the graph
// over the batch, with the same values; `shard`: how the node's first result lies. The device's first sample becomes an input of the graph.
void DrawForSamples(const Graph& whole, Graph& graph, Node& node, const Shard& shard, int64_t samples, int64_t batch);

// Appends the node, a mean over axes among which samples lie, as the part that a device with `samples` of the `batch` has of it.
void AddPartOfMean(GraphBuilder& builder, Node node, int64_t samples, int64_t batch);

// What a device has of a value that is the same everywhere, so that the sum over devices is that value.
ValueId PartOfWhole(GraphBuilder& builder, ValueId whole, int64_t samples, int64_t batch);

// Throws Error(kUnsupported) where what was worked out for `samples` samples is not what the operators' own rules give.
void ExpectTypesOf(const Graph& graph, const TypeRules& rules, int64_t samples);

}  // namespace gradloom

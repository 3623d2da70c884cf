// Data parallelism within branches and loops: the part of replicate_data that handles their bodies.
//
// Devices that share a batch must decide alike: the value that decides a branch or a loop is the same on all of them. Its bodies may then
// see samples. Sums over samples leave a body as partial sums, like those of any operator; there are no collectives inside a body.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/sharding.h"
#include "compiler/passes/devices/batch_dependence.h"

namespace gradloom {

class ReplicatedBody;

// The bodies of one gradloom.If or gradloom.Loop.
class ReplicatedBodies {
 public:
  // The node is at this position in the graph of `around`. All arguments must outlive this.
  ReplicatedBodies(const Node& node, size_t position, const BatchDependence& around, int64_t batch, const TypeRules& rules);
  ReplicatedBodies(ReplicatedBodies&&) noexcept;
  ~ReplicatedBodies();

  // Answers the query for the node. Throws Error(kUnsupported) naming the node in a body that prevents the division.
  void InferShards(ShardQuery& query);

  // Changes the node to `samples` samples; appends nodes for what it reads in place of its operands.
  void ToDevice(Node& node, GraphBuilder& builder, int64_t samples) const;

 private:
  std::vector<std::vector<Shard>> Walk(ShardQuery& query, std::vector<Shard>& inputs);

  const bool loop_;
  const int64_t batch_;
  std::vector<ReplicatedBody> bodies_;
  std::vector<bool> start_becomes_partial_;                // by carried value: it starts equal on all devices, and becomes a partial sum
  std::vector<std::vector<bool>> result_becomes_partial_;  // by body and output: the same for one that is whole
};

// Whether the node draws random numbers.
bool DrawsRandom(const Node& node);

// Makes a node of `graph` that draws numbers for `samples` of the `batch` draw those of their positions in the whole batch. `whole`: the
// graph over the batch, with the same values; `shard`: how the node's first result is divided. The device's first sample becomes an input
// of the graph.
void DrawForSamples(const Graph& whole, Graph& graph, Node& node, const Shard& shard, int64_t samples, int64_t batch);

// Appends the node, a mean over axes that include samples, as the part that a device with `samples` of the `batch` has of it.
void AddPartOfMean(GraphBuilder& builder, Node node, int64_t samples, int64_t batch);

// A device's part of a value that is the same everywhere, such that the sum over devices is that value.
ValueId DeviceShareOf(GraphBuilder& builder, ValueId whole, int64_t samples, int64_t batch);

// Throws Error(kUnsupported) if the types derived for `samples` samples differ from those by the operators' own rules.
void ExpectTypesOf(const Graph& graph, const TypeRules& rules, int64_t samples);

}  // namespace gradloom

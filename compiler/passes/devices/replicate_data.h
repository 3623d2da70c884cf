// Data parallelism as propagation of shards: makes the graphs of devices that share a batch from the graph of the whole batch.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/sharding.h"
#include "compiler/passes/devices/batch_dependence.h"
#include "compiler/passes/devices/batch_numbers.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/devices/replicate_bodies.h"
#include "compiler/passes/recipe.h"
#include "runtime/base/error.h"

namespace gradloom {

// A device's samples, divided like by torch.chunk: all have ceil(batch / devices), the last ones fewer or none.
struct BatchShard {
  int64_t start = 0, length = 0;
};
std::vector<BatchShard> DivideBatch(int64_t batch, int devices);

// The most bytes that devices sum in one all-reduce, except for a single larger tensor.
int64_t BucketBytesOf(const Recipe& recipe);

// Thrown if the batch cannot be divided because nodes relate samples.
class RelatedSamples : public Error {
 public:
  // `first`: the error of the first such node. `origins`: of all nodes that cannot be divided although their operands are.
  RelatedSamples(const Error& first, std::set<std::string> origins) : Error(first), origins_(std::move(origins)) {}

  const std::set<std::string>& origins() const { return origins_; }

 private:
  std::set<std::string> origins_;
};

// How every value of a graph over the whole batch is divided over the devices.
//
// Feeds are divided by samples, parameters and states are whole, and each operator's row says what follows from that. A sum over samples is
// partial on a device. It stays partial through linear operators, and is summed over the devices (AllReduce) where something needs it
// whole: a nonlinear use, a fetch, the next value of a state that is not partial. A maximum or a product over samples is combined from
// those of each device. Branches and loops run on each device over its samples, if all decide alike. Statistics of one device's samples
// that become a state's next value are averaged by sample count. So k devices compute what one computes on the whole batch, except for
// local batch statistics.
class Replication {
 public:
  // `graph`: the model with loss, gradients and updates at `batch` samples, at least 2; `other`: the same at another batch. Both must
  // outlive this. `devices`: the number of devices that share the batch. `gradients`: by parameter. Sums that are ready one after the other
  // are joined into one all-reduce, up to `bucket_bytes`, before the first of them is read. `gathers`: gather_tail has marked the graph,
  // and its tail is not divided. `inner`: of feeds whose samples are known to be arranged so (Shard::inner), as the tail does not tell.
  // Throws RelatedSamples(kUnsupported), naming the first node that relates samples, and Error(kUnsupported).
  Replication(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch, int devices, const TypeRules& rules,
              const std::map<ValueId, ValueId>& gradients, int64_t bucket_bytes, bool gathers = false,
              std::map<ValueId, int64_t> inner = {});

  const Shard& shard(ValueId id) const { return shards_[static_cast<size_t>(id)]; }

  // The graph of a device with this number of samples. Values keep their ids. With no samples, there remain the collectives, to which it
  // contributes zeros, and what is whole; outputs that are divided are removed. All graphs have the same collectives in the same order.
  std::unique_ptr<Graph> ForDevice(int64_t samples) const;

 private:
  class DeviceGraph;

  void Propagate(bool apart);
  void ShardInputs(bool apart);
  bool ShardNode(size_t at);
  int64_t InnerOfGathered(const Shape& shape, int64_t otherwise) const;
  bool RequireWhole(ValueId id);
  bool AllReducesEndTooEarly() const;
  void AddToPart(DeviceGraph& device, Node node, int64_t samples) const;
  void ResizeValues(Graph& graph, int64_t samples) const;
  bool IsKept(const DeviceGraph& device, ValueId id) const;
  bool IsWhole(const DeviceGraph& device, const Node& node) const;
  void AddNode(DeviceGraph& device, size_t at, Node node, bool whole, int64_t samples) const;
  void LeaveOut(DeviceGraph& device, const Node& node) const;
  void Combine(DeviceGraph& device, const Node& node, ValueId id, ValueId own, int64_t samples) const;
  bool NeedsAllReduce(ValueId id) const {
    const auto at = static_cast<size_t>(id);
    return id != kNoValue && (summed_[at] || averaged_[at] || combined_[at]);
  }
  void FillBuckets(int64_t bucket_bytes);
  void Check(const Node& node, const std::vector<Shard>& made) const;
  bool InTail(const Node& node) const { return gathers_ && node.device == kTail; }
  Node Boundary(Node node, int64_t samples) const;

  const Graph& graph_;
  const int64_t batch_;
  const int64_t each_;  // samples of the first device
  const TypeRules& rules_;
  BatchDependence dependence_;
  BatchNumbers numbers_;
  std::vector<int> growing_;                    // by value id: the axis, or -1; for values of the tail -1
  std::vector<bool> of_pairs_;                  // by value id: two axes grow
  std::vector<bool> differs_;                   // by value id: a constant that has different elements for different samples
  std::vector<Shard> shards_;                   // by value id
  std::map<ValueId, std::string> gradient_of_;  // a gradient: its parameter's name
  std::vector<bool> wanted_;                    // by value id: something needs it whole
  std::vector<bool> summed_;                    // by value id: summed over the devices after it is computed
  std::vector<bool> averaged_;                  // by value id: averaged by sample count after it is computed
  std::vector<bool> combined_;                  // by value id: combined from the devices' values by its operator
  std::set<ValueId> last_in_bucket_;            // an all-reduce follows each of these
  std::vector<bool> means_;                     // by position in graph.nodes: a mean over samples
  bool synchronizes_parts_ = false;             // a collective before partial states are added to, from which devices learn of refusals
  std::map<size_t, ReplicatedBodies> bodies_;   // by position in graph.nodes
  bool gathers_;
  const std::map<ValueId, int64_t> inner_;  // of feeds, where known
  std::vector<bool> of_tail_;               // by value id: made by the tail, or read only by it
  std::vector<ValueId> gathered_;           // of the forward pass
};

}  // namespace gradloom

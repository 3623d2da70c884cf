// Data parallelism as propagation of shards: from the graph of a whole batch to the graphs of devices that share it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/ops/sharding.h"
#include "compiler/passes/batch_dependence.h"
#include "compiler/passes/place_devices.h"
#include "compiler/passes/recipe.h"
#include "compiler/passes/replicate_bodies.h"

namespace gradloom {

// Where a device's samples are, as torch.chunk divides a batch: all have ceil(batch / devices), the last less, or none.
struct BatchShard {
  int64_t start = 0, length = 0;
};
std::vector<BatchShard> DivideBatch(int64_t batch, int devices);

// The most bytes that devices sum in one meeting, but for a single larger tensor.
int64_t BucketBytesOf(const Recipe& recipe);

// How every value of a graph over the whole batch lies on the devices.
//
// What is fed is divided by samples, parameters and states are whole, and each operator's row says what becomes of that. A sum
// over samples is partial on a device; it stays so through linear operators and is summed over the devices (AllReduce) where
// something needs it whole: a nonlinear use, a fetch, the next value of a state that is not partial. The largest or the product of what the
// samples have is made of what that is on each device. Branches and loops run on each device over its samples, where all take them alike.
// Statistics of one device's samples that become a state's next value are averaged by sample count. So k devices compute what one computes
// on the whole batch, but for local batch statistics.
class Replication {
 public:
  // `graph` is the model's with loss, gradients and updates at `batch` samples, at least 2; `other` at another batch. Both must
  // outlive this. `devices` share the batch. `gradients`: by parameter. Sums that are ready one after the other meet together, up to
  // `bucket_bytes` of them, before the first of them is read. `gathers`: the graph is one that gather_tail has marked, and its tail is not
  // divided. Throws Error(kUnsupported) naming the node that mixes samples.
  Replication(const Graph& graph, int64_t batch, const Graph& other, int64_t other_batch, int devices, const TypeRules& rules,
              const std::map<ValueId, ValueId>& gradients, int64_t bucket_bytes, bool gathers = false);

  const Shard& shard(ValueId id) const { return shards_[static_cast<size_t>(id)]; }

  // The graph of a device that has so many of the samples. Values keep their ids. With no samples: what remains are the
  // meetings, to which it brings zeros, and what is whole; outputs that are divided are gone from its outputs. All graphs have
  // the same meetings in the same order.
  std::unique_ptr<Graph> ForDevice(int64_t samples) const;

 private:
  class DeviceGraph;

  void Propagate(bool apart);
  bool Want(ValueId id);
  bool AddsToPart(const Node& node) const;
  ValueId AddedToPart(const Node& node) const;
  bool TellsTooEarly() const;
  void AddToPart(DeviceGraph& device, Node node, int64_t samples) const;
  bool Meets(ValueId id) const {
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
  std::vector<int> growing_;                    // by value id
  std::vector<Shard> shards_;                   // by value id
  std::map<ValueId, std::string> gradient_of_;  // a gradient: its parameter's name
  std::vector<bool> wanted_;                    // by value id: something needs it whole
  std::vector<bool> summed_;                    // by value id: summed over the devices where it is made
  std::vector<bool> averaged_;                  // by value id: the same, by sample count
  std::vector<bool> combined_;                  // by value id: made of what it is on each device, by its operator once more
  std::set<ValueId> last_in_bucket_;            // with these the meeting takes place
  std::vector<bool> means_;                     // by position in graph.nodes: a mean over samples
  bool tells_last_ = false;                     // a meeting before partial states are added to, by which devices know of refusals
  std::map<size_t, ReplicatedBodies> bodies_;   // by position in graph.nodes
  bool gathers_;
  std::vector<bool> of_tail_;  // by value id: made by the tail, or read by it alone
};

}  // namespace gradloom

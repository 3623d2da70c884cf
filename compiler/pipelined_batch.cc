#include "compiler/pipelined_batch.h"

#include <utility>

#include "compiler/passes/devices/interleave_stages.h"
#include "compiler/passes/devices/micro_batches.h"

namespace gradloom {

PipelinedBatch::PipelinedBatch(const DividedBatch& divided, int64_t batch, int copies, int micro_batches, int stages,
                               const Recipe& recipe) {
  const std::vector<BatchShard> all = DivideBatch(batch, copies * micro_batches);
  const PassContext& whole = divided.whole->context;
  for (int copy = 0; copy < copies; ++copy) {
    std::vector<MicroBatch> parts;
    BatchShard shard{all[static_cast<size_t>(copy * micro_batches)].start, 0};
    for (int k = 0; k < micro_batches; ++k) {
      const BatchShard& part = all[static_cast<size_t>(copy * micro_batches + k)];
      if (part.length > 0) parts.push_back({part, divided.graphs.at(part.length).get()});
      shard.length += part.length;
    }
    shards_.push_back(shard);
    // All copies with this number of samples have them in the same micro-batches: all of these are full except for the last one.
    if (graphs_.contains(shard.length)) continue;
    if (micro_batches == 1 || parts.empty()) {
      graphs_.emplace(shard.length, divided.graphs.at(shard.length).get());
      continue;
    }
    joined_.push_back(JoinMicroBatches(whole.graph, batch, *divided.replication, parts, copies, whole.rules));
    InterleaveStages(*joined_.back(), stages, recipe);
    graphs_.emplace(shard.length, joined_.back().get());
  }
}

}  // namespace gradloom

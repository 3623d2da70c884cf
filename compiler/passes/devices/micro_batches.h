// Pipeline parallelism: a replica whose model is placed on several devices computes the micro-batches of its share of a batch, so that the
// devices can work on different ones at the same time.
#pragma once

#include <memory>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/devices/replicate_data.h"

namespace gradloom {

// The number of micro-batches, at most `most`, with which a step of `batch` samples takes the least time, if `copies` of a model of
// `stages` share the batch: more of them than that leave a copy without samples, or make the last ones too small.
int MicroBatchesOf(int64_t batch, int copies, int stages, int most);

// A micro-batch as Replication divides the batch: its samples, and the graph of a device that has these.
struct MicroBatch {
  BatchShard shard;
  const Graph* graph = nullptr;
};

// Joins the graphs of a replica's micro-batches, which have samples and follow each other in the batch, into that of the replica. What
// depends on no sample is there once. Values that Replication sums over the devices are first summed over the micro-batches, in their
// order, and then, if there are several `replicas`, over these. The replica is fed the samples of all its micro-batches together, and its
// divided outputs have them together. Nodes are told which micro-batch they belong to. Values of the whole graph keep their ids, except
// that those of the micro-batches are renamed. `whole`: the graph over the whole batch, at `batch` samples, that `replication` divides.
std::unique_ptr<Graph> JoinMicroBatches(const Graph& whole, int64_t batch, const Replication& replication,
                                        const std::vector<MicroBatch>& parts, int replicas, const TypeRules& rules);

}  // namespace gradloom

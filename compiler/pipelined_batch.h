// The replicas of a divided batch, each of which may have several micro-batches under way. Private to this directory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "compiler/divide_graph.h"

namespace gradloom {

class PipelinedBatch {
 public:
  // `divided`: the batch in copies * micro_batches parts, the first micro_batches of which are those of the first copy of the model, and so
  // on. Must outlive this. `stages`: of the model.
  PipelinedBatch(const DividedBatch& divided, int64_t batch, int copies, int micro_batches, int stages, const Recipe& recipe);

  // By the number of samples of a copy.
  const std::map<int64_t, Graph*>& graphs() const { return graphs_; }
  // One per copy.
  const std::vector<BatchShard>& shards() const { return shards_; }

 private:
  std::vector<BatchShard> shards_;
  std::map<int64_t, Graph*> graphs_;
  std::vector<std::unique_ptr<Graph>> joined_;
};

}  // namespace gradloom

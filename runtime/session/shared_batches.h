// Batches that the processes of a job compute apart, each by itself, where nothing is learnt: evaluation and prediction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"
#include "runtime/session/batches.h"

namespace gradloom {

class Communicator;
class Dataset;
class Session;
struct TrainerOptions;

// Batch i is computed by process i modulo their number, as a process by itself would compute it, so that every bit is the same; process 0
// is told what came out, batch after batch. A process reads the rows of its own batches alone.
class SharedBatches {
 public:
  // `communicator` is borrowed; null: all batches are of this process.
  SharedBatches(int64_t rows, int64_t batch, Communicator* communicator);

  int64_t count() const { return count_; }  // of all processes
  int64_t size(int64_t index) const;        // rows of one
  // The rows of this process's batches, one batch after the other.
  const std::vector<int64_t>& order() const { return order_; }

  // Of batch `own` among those of this process, what is to be known of it.
  using Compute = std::function<std::vector<Tensor>(int64_t own)>;
  // The same of batch `index` among all.
  using Take = std::function<void(int64_t index, std::vector<Tensor> computed)>;

  // All processes call it together; `take` is called in process 0 alone, in the order of batches. A process is ahead of process 0 by few
  // batches. Throws what they throw, and Error(kPeer).
  void Run(const Compute& compute, const Take& take);

 private:
  int OwnerOf(int64_t index) const { return static_cast<int>(index % processes_); }

  const int64_t rows_, batch_, count_;
  Communicator* const communicator_;
  const int process_, processes_;
  std::vector<int64_t> order_;
};

// By batch size, what devices of this process read of a data set's batches: all of it where something else than devices looks at rows that
// are made, the loss's weight or, in an evaluation, a metric. Known before any is asked for, as other threads ask.
ReadRows RowsReadBy(const Session& session, EntryKind kind, const Dataset& data, const TrainerOptions& options);

// EvaluateOver by all processes of a job, each with a session of its own: process 0 gets the values, the others nothing.
std::map<std::string, double> EvaluateShared(Session& session, const Dataset& data, const TrainerOptions& options,
                                             Communicator* communicator);

}  // namespace gradloom

// Batches that each process of a job computes by itself, for evaluation and prediction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/batches.h"
#include "runtime/plan/plan.h"

namespace gradloom {

class Communicator;
class ConfusionMatrix;
class Dataset;
class Session;
struct TrainerOptions;

// Process i modulo the number of processes computes batch i as a single process would, so every bit is the same. Process 0 receives the
// results, batch after batch. A process reads only the rows of its own batches.
class SharedBatches {
 public:
  // `communicator` is borrowed; null: this process computes all batches.
  SharedBatches(int64_t rows, int64_t batch, Communicator* communicator);

  int64_t count() const { return count_; }  // over all processes
  int64_t size(int64_t index) const;        // rows of one
  // The rows of this process's batches, one batch after the other.
  const std::vector<int64_t>& order() const { return order_; }

  // The index among all of batch `own` of this process.
  int64_t IndexOf(int64_t own) const { return process_ + own * processes_; }

  // Computes batch `own` of this process, and returns its results.
  using Compute = std::function<std::vector<Tensor>(int64_t own)>;
  // Receives the results of batch `index` among all.
  using Take = std::function<void(int64_t index, std::vector<Tensor> computed)>;

  // All processes call it together; `take` is called only in process 0, in the order of batches. A process runs ahead of process 0 by a few
  // batches. `stop`: only without a communicator; called between two batches, true ends it early. Returns whether all batches were
  // computed. Throws what they throw, and Error(kPeer).
  bool Run(const Compute& compute, const Take& take, const std::function<bool()>& stop = {});

 private:
  int OwnerOf(int64_t index) const { return static_cast<int>(index % processes_); }

  const int64_t rows_, batch_, count_;
  Communicator* const communicator_;
  const int process_, processes_;
  std::vector<int64_t> order_;
};

// By batch size, the rows of a data set's batches that this process's devices read. All rows if something besides devices uses rows from a
// source: the loss's weight or, in an evaluation, a metric. Computed before rows are requested, since other threads request them.
ReadRows RowsReadBy(const Session& session, EntryKind kind, const Dataset& data, const TrainerOptions& options);

// EvaluateOver by all processes of a job, each with its own session: process 0 gets the values, the others an empty map. `confusion`: if
// not null, process 0 also counts in it, as its specification says. `stop`: as EvaluateOver's, only without a communicator.
std::map<std::string, double> EvaluateShared(Session& session, const Dataset& data, const TrainerOptions& options,
                                             Communicator* communicator, ConfusionMatrix* confusion = nullptr,
                                             const std::function<bool()>& stop = {});

}  // namespace gradloom

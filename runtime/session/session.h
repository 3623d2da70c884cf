// A session trains, evaluates and predicts with a plan. It holds the state, the step count and the learning rate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/numerics.h"
#include "runtime/plan/plan.h"
#include "runtime/session/update_rule.h"

namespace gradloom {

// Tensors by name: model inputs and targets, in the shapes of the plan's feeds or by samples (runtime/plan/sample_axes.h). Borrowed for the
// call.
using Feeds = std::map<std::string, TensorView, std::less<>>;

struct StepResult {
  double loss = 0;        // of this batch, before the update
  double lr = 0;          // of this update
  double grad_norm = -1;  // global L2 norm before clipping; -1 if the plan does not compute it
  int64_t step = 0;       // updates done so far, including this one
  int64_t batch = 0;      // batches done so far, including this one
  bool updated = false;   // false while gradients are being accumulated
  // Of a loss with several terms, each term times its weight, in the order of Plan::loss_terms; otherwise empty.
  std::vector<double> terms;
};

// The shapes of an entry's feeds, by name.
using FeedShapes = std::map<std::string, Shape, std::less<>>;

// Makes entries for shapes that a plan does not have. The full library compiles them. A standalone runtime has no source; such a shape is
// then an error that lists the available ones.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  // A plan with the same state table as `plan`, all its entries, and one of this kind for these feed shapes: for another batch size, or
  // another extent along an axis that the model's file leaves open. Null if the model cannot have them. Throws what compiling throws.
  virtual std::shared_ptr<const Plan> Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) = 0;
};

struct SessionOptions {
  int64_t seed = 0;
  std::shared_ptr<PlanSource> source;
  ExecutorOptions executor;
};

// Not thread-safe; a process may have several sessions.
class Session {
 public:
  // Holds no weights besides its state. If the caller releases `plan` and what it was compiled from, the memory of their weights becomes
  // free for steps.
  explicit Session(std::shared_ptr<const Plan> plan, SessionOptions options = {});

  // Trains on one batch: forward, backward and, once plan.accumulate batches are done, the update. The batch size is that of the feeds.
  // Throws Error(kData) for missing or misshapen feeds and bad labels, Error(kConfig) if the plan cannot train. `next`: if the plan has
  // copy streams, called on another thread during the step for the feeds of the next step, or null. They are copied ahead, and must stay
  // unchanged until that step has ended.
  StepResult Step(const Feeds& feeds, const std::function<const Feeds*()>& next = {});
  // The two halves of a step, for callers who decide how many batches make an update. Accumulate runs forward and backward and adds the
  // gradients to the accumulated ones (states "<parameter>/grad_sum"). Update uses their sum and sets them to zero; DropGradients only sets
  // them to zero. Throw Error(kConfig) if the plan has no entries for it, if it counts the batches of an update itself (plan.accumulate),
  // and for an update without accumulated gradients. Step refuses while there are accumulated gradients. SetGradient replaces one of the
  // sums, and is enough for an update; with loss scaling it must be that of the scaled loss. Throws Error(kShape) too.
  StepResult Accumulate(const Feeds& feeds);
  StepResult Update();
  void DropGradients();
  void SetGradient(const StateTensor& sum, const TensorView& value);
  int64_t accumulated() const { return accumulated_; }  // number of accumulated batches, by Accumulate or by Step
  void set_accumulated(int64_t batches) { accumulated_ = batches; }
  // The number of batches in an epoch. The last batch of an epoch then ends its update (UpdateRule). 0, as at first: epochs end no update.
  void set_epoch(int64_t batches);
  int64_t epoch() const { return epoch_; }  // 0 too if the plan's updates do not end with epochs

  // The texts of all processes that run this session together, in their order. All must call it.
  std::vector<std::string> AllGather(const std::string& own) const;

  // The rows [first, last) that this process's devices read of a batch of `batch` rows; at least one.
  std::pair<int64_t, int64_t> RowsRead(EntryKind kind, int64_t batch) const;

  // The number of threads of this process that may prepare batches and compare outputs: as many as compute on its devices, but no more than
  // there are cores.
  int host_threads() const;

  // Whether `next` of Step is used.
  bool copies_inputs() const;
  // Waits until `next` has returned and its feeds are copied.
  void FinishPrefetch() { executor_->FinishPrefetch(); }
  // The same, and forgets the copies: call it before the memory of those feeds changes or is freed without a step on them.
  void DropPrefetch() { executor_->DropPrefetch(); }

  // The loss, its terms if there are several, and outputs of a batch without training ("loss", "loss/box", the model's output names).
  std::map<std::string, Tensor> Evaluate(const Feeds& feeds);
  std::map<std::string, Tensor> Predict(const Feeds& feeds);

  // The same without copying outputs: fetch them by name. `kind` is kEval or kPredict.
  void Forward(EntryKind kind, const Feeds& feeds);
  // The loss of the entry that ran last; if it returns only the terms (Plan::loss_terms), their sum.
  double loss() const;
  // The terms of that loss, as in StepResult. The entry must have a loss.
  std::vector<double> loss_terms() const;

  // A fetch of the last step or evaluation by name ("loss", "grad/fc.weight", an output), borrowed until the next one. Throws
  // Error(kConfig) listing the fetches.
  TensorView Fetched(std::string_view name) const;
  // The same in the memory of a device other than the CPU; nullopt if it is in host memory, if several devices have parts of it, or if the
  // data decided how many elements are valid.
  std::optional<DeviceTensor> FetchedOnDevice(std::string_view name) const;
  bool HasFetch(std::string_view name) const;

  // Whether no step that failed has changed the state, or may have: then it is that of the steps and batches that are counted.
  bool StateIsWhole() const { return !torn_; }

  // Whether accumulated gradients exist of which each device holds a part (StateTensor::partial).
  bool PartsPending() const;
  // Sums those parts on the first device that has them, so that the state can be saved and continued to the same bits. All processes of a
  // job call it together. Does nothing without such gradients.
  void JoinParts();

  // Parameters, statistics and optimizer state by name, in logical order. Throw Error(kConfig) for an unknown name, Error(kShape) for
  // another dtype or shape. In a job whose processes hold parts of the state, Get throws Error(kPlan) for state that only others hold or
  // have parts of, and Set leaves it unchanged.
  Tensor Get(std::string_view state) const;
  void Set(std::string_view state, const TensorView& value);
  // The name of the state with the trained value of a weight: its moving average, if the plan has one, otherwise itself.
  std::string TrainedState(const std::string& weight) const;
  // The index of a state in the plan, or -1. Unlike Plan::FindState, does not go through all of them.
  int FindState(std::string_view state) const;
  // Whether this process holds a state tensor of the plan.
  bool Holds(const StateTensor& state) const { return executor_->shared_state()->holds(state); }

  // The given plan with the entries that were added, without the initial values of its state.
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  // The executor of the plan; may be replaced when an entry is added.
  Executor& executor() { return *executor_; }
  // The entry that ran last; for a step that accumulates and updates, the one that accumulates; -1: none.
  int last_entry() const { return last_entry_; }
  int64_t step() const { return step_; }
  int64_t batch() const { return batch_; }
  int64_t seed() const { return options_.seed; }
  // From the next run on.
  void set_seed(int64_t seed) { options_.seed = seed; }

  // Saves all state and the counters, for UndoStep to restore. Takes the state's bytes once more, in host memory. Throws Error(kResource)
  // if there is no memory for it.
  void KeepState();
  void UndoStep();

  // Counts a batch without training on it. If it is the last one of an update, the update uses the others; `none_left`: there is no other,
  // so there is no update.
  StepResult SkipBatch(bool none_left);

  // The name of the first parameter, optimizer state or accumulated gradient (except with a scaled loss) that has NaN or infinity; "" if
  // there is none. If processes of a job hold parts of the state, all call it together and get the same result.
  std::string NonFiniteState() const;

  // Where the NaN or infinity of the last step's loss came from or, if the loss is finite, that of the state with this name: "Log '/log' in
  // the forward pass of step 3: ...". "" if nothing is known: without ExecutorOptions::check_numerics, or if nobody asked for numbers to be
  // looked at when they were made. All processes of a job call it together and get the same text.
  std::string NonFiniteOrigin(const std::string& state) const;
  // Whether the numbers of each instruction are looked at.
  bool checks_numerics() const;
  // The same for the first state that NonFiniteState would name, as far as this process knows.
  std::string OwnNonFiniteOrigin() const;

  // The loss scale, and the number of updates skipped because of it; nullopt if losses are not scaled, or this process does not hold it.
  struct LossScaleCounts {
    double scale = 0;
    int64_t skipped = 0;
  };
  std::optional<LossScaleCounts> loss_scale() const;

  // Sets the counters from a checkpoint. If the plan counts the batches of an update, that of accumulated ones follows.
  void set_position(int64_t step, int64_t batch);

  // Overrides the schedule until cleared by a negative value.
  void set_learning_rate(double lr) { fixed_lr_ = lr; }
  double fixed_learning_rate() const { return fixed_lr_; }
  // The learning rate of the next update.
  double learning_rate() const;

  // By device: the memory that this session holds.
  std::vector<DeviceMemory> device_memory() const { return executor_->memory(); }
  // Frees memory that only a running step needs; the next step allocates it again. Changes no state.
  void ReleaseMemory();

  // Bytes on the device that uses most memory: state, constants, transient and input arenas.
  int64_t planned_bytes() const;

 private:
  struct Kept {
    std::vector<std::vector<std::byte>> state;  // by rank; empty if another rank of its place has the same
    int64_t step = 0, batch = 0, accumulated = 0;
    bool parts_pending = false;
  };

  // Makes the executor, with fresh or existing state, and keeps the plan.
  void Load(std::shared_ptr<const Plan> plan);
  // Whether the plan counts the batches of an update.
  bool CountsBatches() const { return plan_->accumulate > 1; }
  // Whether a batch is the last one of its update, given the number of all batches before it and of those of its update.
  bool EndsUpdate(int64_t batch, int64_t accumulated) const;
  // The entry kind that trains on a batch, given whether it is the last one of its update.
  EntryKind TrainingKind(bool last) const;
  // Counts a batch, and the update that it ends.
  void CountBatch(bool updated);
  int FindEntry(EntryKind kind, const Feeds& feeds);
  [[noreturn]] void ThrowNoEntry(EntryKind kind, const Feeds& feeds) const;
  void CheckSeparateUpdate() const;
  size_t SnapshotRank(size_t rank) const;
  Communicator* communicator() const { return options_.executor.communicator.get(); }
  void KeepFetches();
  void Run(int entry, const Feeds& feeds, NextRun next = {});
  void KeepLossOrigin(const NumericsLog& log, const Entry& entry);
  std::string OwnNonFiniteState() const;
  std::optional<gradloom::NonFiniteOrigin> OriginOfState(const std::string& state) const;
  std::map<std::string, Tensor> FetchAll() const;
  // The index of a fetch of the entry that ran last, or -1.
  int FindFetch(std::string_view name) const;
  // The same. Throws Error(kConfig) listing the fetches.
  int FetchIndex(std::string_view name) const;
  TensorView FetchedAt(int index) const;

  std::shared_ptr<const Plan> plan_;
  // By name, as the plan has them: states, and for each entry fetches. There may be tens of thousands, which are looked up one by one.
  using Indices = std::unordered_map<std::string_view, int>;
  Indices states_;
  std::vector<Indices> fetches_;
  SessionOptions options_;
  std::unique_ptr<Executor> executor_;
  std::vector<TensorView> bound_;  // the feeds of the running entry
  int last_entry_ = -1;
  // Fetches of that entry, if an update ran after it.
  bool overrun_ = false;
  std::vector<Tensor> overrun_fetches_;
  int64_t step_ = 0;
  int64_t batch_ = 0;
  int64_t accumulated_ = 0;
  bool torn_ = false;           // see StateIsWhole
  bool parts_pending_ = false;  // whether devices hold parts of accumulated gradients
  double fixed_lr_ = -1;
  std::optional<gradloom::NonFiniteOrigin> loss_origin_;  // of the loss of the last run that had one; nullopt if that is finite
  Kept kept_;
  int64_t epoch_ = 0;  // batches per epoch, if epochs end updates
};

}  // namespace gradloom

// Trains, evaluates and predicts with a plan: keeps the state, the step count and the learning rate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Tensors by name: model inputs and targets going in, outputs coming out. Feeds are borrowed for the call.
using Feeds = std::map<std::string, TensorView, std::less<>>;

struct StepResult {
  double loss = 0;        // of this batch, before the update
  double lr = 0;          // of this update
  double grad_norm = -1;  // global L2 norm before clipping; -1 where the plan does not compute it
  int64_t step = 0;       // updates done so far, this one included
  int64_t batch = 0;      // batches seen so far, this one included
  bool updated = false;   // false while gradients are being accumulated
};

// What an entry is fed, by name.
using FeedShapes = std::map<std::string, Shape, std::less<>>;

// Makes entries for shapes that a plan does not have yet. The full library compiles them; a standalone
// runtime has no source, and then such a shape is an error that lists those there are.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  // A plan with the same state table as `plan` (and all its entries) plus one of this kind that is fed such shapes: of another batch, or
  // of another extent along an axis that the model's file leaves open. Null where the model cannot have them. Throws what compiling throws.
  virtual std::shared_ptr<const Plan> Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) = 0;
};

struct SessionOptions {
  int64_t seed = 0;
  std::shared_ptr<PlanSource> source;
  ExecutorOptions executor;
};

// Not thread-safe; several sessions may live in one process.
class Session {
 public:
  // Keeps no weights but its state: where the caller has no use for `plan` and what it was compiled from, and lets go of them, the memory
  // of the weights that they hold is free for the steps.
  explicit Session(std::shared_ptr<const Plan> plan, SessionOptions options = {});

  // One batch of training: forward, backward, and the update once plan.accumulate batches are in. The
  // batch size is that of the feeds. Throws Error(kData) for missing or misshapen feeds and bad labels,
  // Error(kConfig) where the plan cannot train.
  // `next`: where the plan has copy streams, asked on another thread while the step runs for what the next step will be fed, or null;
  // that is copied ahead, and must stay as it is until that step has ended.
  StepResult Step(const Feeds& feeds, const std::function<const Feeds*()>& next = {});
  // The two halves of a step, for callers who decide themselves how many batches an update has. Accumulate runs forward and backward and
  // adds the gradients to those that wait (states "<parameter>/grad_sum"); Update takes their sum and sets them to zero; DropGradients does
  // that without an update. Throw Error(kConfig) where the plan has no entries for it, where it counts the batches of an update itself
  // (plan.accumulate), and for an update that nothing waits for. Step refuses while gradients wait.
  StepResult Accumulate(const Feeds& feeds);
  StepResult Update();
  void DropGradients();
  int64_t accumulated() const { return accumulated_; }  // batches whose gradients wait
  void set_accumulated(int64_t batches) { accumulated_ = batches; }

  // Of a batch of so many rows, those that devices of this process read of what is fed, [first, last), at least one.
  std::pair<int64_t, int64_t> RowsRead(EntryKind kind, int64_t batch) const;

  // Whether asking for the next feeds is of use.
  bool copies_inputs() const;
  // Returns when `next` is not being asked, nor anything copied ahead.
  void FinishAhead() { executor_->FinishAhead(); }

  // The loss and outputs of a batch without training ("loss" and the model's output names).
  std::map<std::string, Tensor> Evaluate(const Feeds& feeds);
  std::map<std::string, Tensor> Predict(const Feeds& feeds);

  // The same without copies: what came out is fetched by name. `kind` is kEval or kPredict.
  void Forward(EntryKind kind, const Feeds& feeds);
  // Of the entry that ran last; of one that gives its terms apart, "loss/0" and so on, their sum.
  double loss() const;

  // A fetch of the last step or evaluation by name ("loss", "grad/fc.weight", an output), borrowed until
  // the next one. Throws Error(kConfig) naming the fetches there are.
  TensorView Fetched(std::string_view name) const;
  // The same where it lies on a device that is no CPU; none where that is host memory, where several devices have parts of it, or where the
  // data of the run have decided how many elements count.
  std::optional<DeviceTensor> FetchedOnDevice(std::string_view name) const;
  bool HasFetch(std::string_view name) const;

  // Where each device keeps its part of the gradients that wait for an update (StateTensor::partial): whether some wait now.
  bool PartsWait() const;
  // Brings those parts together on the first device that has them, so that the state can be kept and gone on with to the same bits. All
  // processes of a job call it together. Without parts that wait it does nothing.
  void JoinParts();

  // Parameters, statistics and optimizer state by name, in logical order. Throw Error(kConfig) for an
  // unknown name, Error(kShape) for another dtype or shape. Of a job whose processes hold parts of the state each, Get throws Error(kPlan)
  // for what others hold alone or have parts of, and Set leaves that as it is.
  Tensor Get(std::string_view state) const;
  void Set(std::string_view state, const TensorView& value);
  // Whether this process holds a state tensor of the plan.
  bool Holds(const StateTensor& state) const { return executor_->shared_state()->holds(state); }

  // What runs: the plan that was given, and entries that were added, without the values that its state started with.
  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  // What runs the plan; replaced where an entry is added.
  Executor& executor() { return *executor_; }
  // The entry that ran last, of a step that accumulates and updates the one that accumulates; -1: none has.
  int last_entry() const { return last_entry_; }
  int64_t step() const { return step_; }
  int64_t batch() const { return batch_; }
  int64_t seed() const { return options_.seed; }
  // From the next run on.
  void set_seed(int64_t seed) { options_.seed = seed; }

  // Keeps all state and the counters as they are, for UndoStep to bring them back. Takes the state's bytes once more.
  void KeepState();
  void UndoStep();

  // Counts a batch without training on it. Where it is the last one of an update, that is made of the others.
  StepResult SkipBatch();

  // The name of the first parameter, optimizer state or accumulated gradient (but for a scaled loss) with NaN or
  // infinity; "" where there is none. Where processes of a job hold parts of the state each, all call it together and get the same.
  std::string NonFiniteState() const;

  // The scale of the losses that gradients are made of, and the updates left out because of it; nothing where losses are not scaled, or
  // this process does not hold it.
  struct LossScaleCounts {
    double scale = 0;
    int64_t skipped = 0;
  };
  std::optional<LossScaleCounts> loss_scale() const;

  // Goes on from a checkpoint's counters.
  void set_position(int64_t step, int64_t batch);

  // Overrides the schedule until cleared by a negative value.
  void set_learning_rate(double lr) { fixed_lr_ = lr; }
  double fixed_learning_rate() const { return fixed_lr_; }
  // The learning rate of the next update.
  double learning_rate() const;

  // By device: what this session holds of its memory.
  std::vector<DeviceMemory> device_memory() const { return executor_->memory(); }
  // Gives back what only a running step needs; the next one takes it again. Changes no state.
  void ReleaseMemory();

  // Bytes that the run holds on the device that holds most: state, constants, transient and input arenas.
  int64_t planned_bytes() const;

 private:
  struct Kept {
    std::vector<std::vector<std::byte>> state;  // by rank; empty where another of its place has the same
    int64_t step = 0, batch = 0;
  };

  // Makes the executor, of fresh state or of what there is, and keeps the plan.
  void Load(std::shared_ptr<const Plan> plan);
  int FindEntry(EntryKind kind, const Feeds& feeds);
  [[noreturn]] void ThrowUnfit(EntryKind kind, const Feeds& feeds) const;
  void CheckApart() const;
  size_t KeptBy(size_t rank) const;
  Communicator* communicator() const { return options_.executor.communicator.get(); }
  void KeepFetches();
  void Run(int entry, const Feeds& feeds, NextRun next = {});
  std::map<std::string, Tensor> FetchAll() const;
  // Of the entry that ran last. Throws Error(kConfig) naming the fetches there are.
  int FetchIndex(std::string_view name) const;

  std::shared_ptr<const Plan> plan_;
  SessionOptions options_;
  std::unique_ptr<Executor> executor_;
  std::vector<TensorView> bound_;  // the feeds of the running entry
  int last_entry_ = -1;
  // Fetches of that entry where an update ran after it.
  bool overrun_ = false;
  std::vector<Tensor> overrun_fetches_;
  int64_t step_ = 0;
  int64_t batch_ = 0;
  int64_t accumulated_ = 0;
  bool parts_apart_ = false;  // since a batch was added to them
  double fixed_lr_ = -1;
  Kept kept_;
};

}  // namespace gradloom

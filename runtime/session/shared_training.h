// The shared state of processes on one host that train one set of parameters without locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Counts over all processes, since the job began.
struct SharedCounts {
  int64_t updates = 0, rows = 0;
  double loss_sum = 0, loss_weight = 0;  // sum of each batch's loss times its weight
  // Total number of updates that others finished while a process was between reading parameters and its own update.
  int64_t staleness = 0;
  // A sample of lost updates, for which another process wrote between the reading and the writing of one: after each step each process adds
  // 1 to numbers of the size of a parameter in shared memory, without a lock, like the update does.
  int64_t marks = 0, marks_lost = 0;
};

// "Hogwild" (Niu, Recht, Re and Wright, 2011): each process reads the parameters while others write them, and writes its updates into them
// without synchronization. If another process writes an element between a process's reading and writing of it, that write is lost. No
// element is torn: reads and writes of aligned elements of 2, 4 and 8 bytes are atomic on the processors that Gradloom runs on. Each
// process takes the next batch of the run when it is free, so a slow one delays nobody. The memory has no name and ends with the last
// process.
class SharedTraining {
 public:
  // All processes of the job must call it, with the same plan and on one host. Throws Error(kUnsupported) naming a process that cannot
  // reach the memory of rank 0, and Error(kPeer).
  static std::shared_ptr<SharedTraining> Make(const Plan& plan, std::shared_ptr<Communicator> communicator);

  // For ExecutorOptions::parameters; lives as long as it is referenced.
  std::shared_ptr<std::byte> parameters() const { return parameters_; }
  int processes() const { return communicator_->processes(); }
  bool leads() const { return communicator_->process() == 0; }

  // Waits until all processes have called it. Throws Error(kPeer) if one does not.
  void Barrier();
  // Called by rank 0 before all call Barrier: sets the number of batches that the run has done.
  void Begin(int64_t batches);
  // Takes `count` batches of the run for this process, and returns the index of the first. Beyond the run's last there is no batch.
  int64_t Claim(int64_t count) { return header_->claimed.fetch_add(count); }
  // Number of batches trained on, including those before the job.
  int64_t done() const { return header_->done.load(); }
  // Reports that a batch was trained on. `seen`: the value of done() when its step began. Returns done(). Throws Error(kPeer) if the job
  // has failed.
  int64_t Finish(int64_t rows, double loss_sum, double loss_weight, int64_t seen);
  SharedCounts counts() const;

  // While busy, this process may compute or write files as long as it is alive, without a timeout in the others.
  void SetBusy(bool busy) { communicator_->SetBusy(busy); }

  // Ends the run in all processes after the current step; the first reason counts. A signal, or kNoImprovement.
  static constexpr int kNoImprovement = -1;
  void RequestStop(int why);
  int stop() const { return header_->stop.load(); }

  // The learning rate from now on; negative: the plan's schedule.
  void set_learning_rate(double lr) { header_->learning_rate.store(lr); }
  double learning_rate() const { return header_->learning_rate.load(); }
  // Sets the initial learning rate; all processes pass the same value, and the first call counts.
  void BeginLearningRate(double lr) {
    double schedule = -1;
    header_->learning_rate.compare_exchange_strong(schedule, lr);
  }
  // The step of rank 0's last checkpoint, for messages.
  void set_saved_step(int64_t step) { header_->saved_step.store(step); }
  int64_t saved_step() const { return header_->saved_step.load(); }

 private:
  static constexpr int kMarks = 256;

  // At the beginning of the memory.
  struct alignas(64) Header {
    std::atomic<int64_t> claimed{0};
    alignas(64) std::atomic<int64_t> done{0};
    std::atomic<int64_t> saved_step{-1};
    std::atomic<double> learning_rate{-1};
    std::atomic<int> stop{0};
    alignas(64) std::atomic<uint32_t> marks[kMarks]{};
  };
  // The counts of a process; only that process writes them.
  struct alignas(64) Slot {
    std::atomic<int64_t> updates{0}, rows{0}, staleness{0};
    std::atomic<double> loss_sum{0}, loss_weight{0};
  };
  static_assert(std::atomic<double>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

  SharedTraining(std::shared_ptr<Communicator> communicator, std::unique_ptr<SharedMemory> memory);
  static size_t HeaderBytes(int processes);
  Slot& slot(int process) const { return reinterpret_cast<Slot*>(header_ + 1)[process]; }

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<SharedMemory> memory_;
  Header* const header_;
  const std::shared_ptr<std::byte> parameters_;
};

}  // namespace gradloom

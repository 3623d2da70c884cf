#include "runtime/session/shared_training.h"

#include <new>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kPageBytes = 4096;

// For variables with a single writer.
template <typename T>
void Add(std::atomic<T>& to, T value) {
  to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

size_t SharedTraining::HeaderBytes(int processes) {
  return static_cast<size_t>(AlignUp(static_cast<int64_t>(sizeof(Header) + sizeof(Slot) * static_cast<size_t>(processes)), kPageBytes));
}

SharedTraining::SharedTraining(std::shared_ptr<Communicator> communicator, std::unique_ptr<SharedMemory> memory)
    : communicator_(std::move(communicator)),
      memory_(std::move(memory)),
      header_(reinterpret_cast<Header*>(memory_->data())),
      parameters_(memory_, memory_->data() + HeaderBytes(communicator_->processes())) {}

std::shared_ptr<SharedTraining> SharedTraining::Make(const Plan& plan, std::shared_ptr<Communicator> communicator) {
  const int processes = communicator->processes();
  const size_t bytes = HeaderBytes(processes) + static_cast<size_t>(plan.places.front().state_bytes);
  std::unique_ptr<SharedMemory> memory;
  if (communicator->process() == 0) memory = SharedMemory::Make("gradloom-parameters", bytes);
  const std::string address = communicator->Broadcast(memory == nullptr ? "" : memory->address());
  if (communicator->process() == 0 && memory != nullptr) {
    new (memory->data()) Header;
    for (int i = 0; i < processes; ++i) new (memory->data() + sizeof(Header) + sizeof(Slot) * static_cast<size_t>(i)) Slot;
  } else if (!address.empty()) {
    memory = SharedMemory::Open(address, bytes);
  }
  const std::vector<std::string> reached = communicator->AllGather(memory == nullptr ? "no" : "yes");
  for (int i = 0; i < processes; ++i) {
    if (reached[static_cast<size_t>(i)] == "yes") continue;
    // All processes have found this, and none must take the end of another one for a failure.
    communicator->Leave();
    throw Error(ErrorCode::kUnsupported,
                i == 0 ? communicator->name(0) + " cannot allocate shared memory"
                       : communicator->name(i) + " cannot map the parameters of " + communicator->name(0),
                "", "hogwild needs processes of one host that may access each other's memory; use  --sync allreduce  on several hosts");
  }
  return std::shared_ptr<SharedTraining>(new SharedTraining(std::move(communicator), std::move(memory)));
}

void SharedTraining::Barrier() { communicator_->AllGather(""); }

void SharedTraining::Begin(int64_t batches) {
  header_->claimed = batches;
  header_->done = batches;
}

int64_t SharedTraining::Finish(int64_t rows, double loss_sum, double loss_weight, int64_t seen) {
  for (std::atomic<uint32_t>& mark : header_->marks) mark.store(mark.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const int64_t before = header_->done.fetch_add(1);
  Slot& own = slot(communicator_->process());
  Add<int64_t>(own.updates, 1);
  Add(own.rows, rows);
  Add(own.staleness, before - seen);
  Add(own.loss_sum, loss_sum);
  Add(own.loss_weight, loss_weight);
  communicator_->ThrowIfFailed();
  return before + 1;
}

SharedCounts SharedTraining::counts() const {
  SharedCounts sum;
  for (int i = 0; i < processes(); ++i) {
    const Slot& of = slot(i);
    sum.updates += of.updates;
    sum.rows += of.rows;
    sum.staleness += of.staleness;
    sum.loss_sum += of.loss_sum;
    sum.loss_weight += of.loss_weight;
  }
  sum.marks = sum.updates * kMarks;
  // The counters wrap around at 2^32.
  for (const std::atomic<uint32_t>& mark : header_->marks)
    sum.marks_lost += static_cast<uint32_t>(static_cast<uint32_t>(sum.updates) - mark.load());
  return sum;
}

void SharedTraining::RequestStop(int why) {
  int none = 0;
  header_->stop.compare_exchange_strong(none, why);
}

}  // namespace gradloom

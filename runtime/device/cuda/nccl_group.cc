#include "runtime/device/cuda/nccl_group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/check.h"
#include "runtime/device/cuda/use_device.h"

namespace gradloom::cuda {
namespace {

using Operand = DeviceGroup::Operand;
using Operands = std::span<const std::vector<Operand>>;
using Streams = std::span<void* const>;

// Less free memory than this on a GPU is the reason why NCCL cannot allocate its buffers or load its kernels.
constexpr size_t kLittleBytes = size_t{16} << 20;

// How long an abort waits for a call of another thread.
constexpr auto kCallLimit = std::chrono::seconds(1);

// Whether the thread's current GPU has nearly no free memory.
bool IsFull() {
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  cudaGetLastError();  // the next launch would report it
  return error == cudaSuccess && free < kLittleBytes;
}

void CheckNccl(ncclResult_t result, const char* call) {
  // A communicator with work in progress is not an error.
  if (result == ncclSuccess || result == ncclInProgress) return;
  if (result == ncclUnhandledCudaError && IsFull()) {
    throw Error(ErrorCode::kResource, std::string(call) + " failed: the GPU has no memory left for NCCL's buffers",
                ncclGetLastError(nullptr), "use a smaller --batch, --memory-limit to recompute activations, or --precision bf16");
  }
  const std::string reason = ncclGetLastError(nullptr);
  // Containers have 64 MiB of it unless they are given more.
  const bool shared_memory = reason.find("shared memory") != std::string::npos || reason.find("/dev/shm") != std::string::npos;
  throw Error(
      ErrorCode::kDevice, std::string(call) + " failed: " + ncclGetErrorString(result), reason,
      shared_memory ? "give the container more shared memory (docker run --shm-size=1g, or --ipc=host)" : "run again with NCCL_DEBUG=INFO");
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
    case DType::kFloat16: return ncclFloat16;
    case DType::kBfloat16: return ncclBfloat16;
    case DType::kInt32: return ncclInt32;
    case DType::kInt64: return ncclInt64;
    case DType::kUint8:
    case DType::kBool: return ncclUint8;
    default: break;
  }
  throw Error(ErrorCode::kUnsupported, "collectives do not support " + std::string(DTypeName(dtype)));
}

// Scope of an NCCL group call. If an exception is thrown inside, the queued calls are dropped with the communicators.
class Asking {
 public:
  Asking() { CheckNccl(ncclGroupStart(), "ncclGroupStart"); }
  ~Asking() {
    if (open_) ncclGroupEnd();
  }
  void End(const char* call) {
    open_ = false;
    CheckNccl(ncclGroupEnd(), call);
  }

 private:
  bool open_ = true;
};

// Each step is awaited, so no collective outside of a graph runs beside one in a graph. NCCL's documentation knows of launches of graphs
// that hang with several GPUs in a process while this is supported.
void LeaveGraphsUnmixed() { setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0); }

class NcclGroup : public DeviceGroup {
 public:
  explicit NcclGroup(std::span<Device* const> members) : ordinals_(OrdinalsOf(members)), communicators_(members.size()) {
    LeaveGraphsUnmixed();
    CheckNccl(ncclCommInitAll(communicators_.data(), static_cast<int>(ordinals_.size()), ordinals_.data()), "ncclCommInitAll");
  }

  // The communicators are non-blocking: no NCCL call waits for other processes, which may have ended. Progress is polled instead.
  NcclGroup(std::span<Device* const> members, const DistributedGroup& distributed)
      : ordinals_(OrdinalsOf(members)), communicators_(members.size()), waiting_(distributed.waiting) {
    LeaveGraphsUnmixed();
    ncclUniqueId id;
    GRADLOOM_CHECK(distributed.id.size() == sizeof id.internal && distributed.positions.size() == members.size());
    std::memcpy(id.internal, distributed.id.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      Asking asking;
      for (size_t m = 0; m < ordinals_.size(); ++m) {
        GRADLOOM_CUDA(UseDevice(ordinals_[m]));
        CheckNccl(ncclCommInitRankConfig(&communicators_[m], distributed.size, id, distributed.positions[m], &config),
                  "ncclCommInitRankConfig");
      }
      asking.End("ncclCommInitRankConfig");
      Settle();
    } catch (...) {
      Abort();
      throw;
    }
  }

  ~NcclGroup() override {
    // Processes leave the job together after their last step, so nothing is in flight, and a process that has already ended is not waited
    // for.
    if (waiting_) {
      Abort();
    } else if (!ended_) {
      EndAll(ncclCommDestroy);
    }
  }

  void AllReduceSum(Operands operands, Streams streams) override {
    ForAll(operands, streams, "ncclAllReduce", [](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclAllReduce(o.read, o.write, Count(o.read_bytes, o), TypeOf(o.dtype), ncclSum, c, stream);
    });
  }
  void Broadcast(int root, Operands operands, Streams streams) override {
    ForAll(operands, streams, "ncclBroadcast", [root](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclBroadcast(o.read, o.write, static_cast<size_t>(o.write_bytes), ncclUint8, root, c, stream);
    });
  }
  void ReduceScatterSum(Operands operands, Streams streams) override {
    ForAll(operands, streams, "ncclReduceScatter", [](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclReduceScatter(o.read, o.write, Count(o.write_bytes, o), TypeOf(o.dtype), ncclSum, c, stream);
    });
  }
  void AllGather(Operands operands, Streams streams) override {
    ForAll(operands, streams, "ncclAllGather", [](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclAllGather(o.read, o.write, static_cast<size_t>(o.read_bytes), ncclUint8, c, stream);
    });
  }
  void ReduceSum(Operands operands, Streams streams) override {
    ForAll(operands, streams, "ncclReduce", [](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclReduce(o.read, o.write, Count(o.read_bytes, o), TypeOf(o.dtype), ncclSum, o.root, c, stream);
    });
  }

  void Check() override { InProgress(); }

  // All members are aborted together: each waits for the end of the graph that contains the others' collectives.
  void Abort() noexcept override {
    if (ended_.exchange(true)) return;
    // A call of another thread may still use the communicators, which are freed here. Such calls are short. One that is not waits for other
    // members, and an abort is what ends it.
    if (use_.try_lock_for(kCallLimit)) use_.unlock();
    ncclGroupStart();
    EndAll(ncclCommAbort);
    ncclGroupEnd();
  }

 private:
  static std::vector<int> OrdinalsOf(std::span<Device* const> members) {
    std::vector<int> ordinals;
    for (const Device* member : members) ordinals.push_back(member->ordinal());
    return ordinals;
  }
  // Ends each communicator by `end`. NCCL makes the thread's device current again afterwards, which in a thread that has chosen none makes
  // a context on device 0.
  template <typename F>
  void EndAll(F&& end) noexcept {
    for (size_t m = 0; m < ordinals_.size(); ++m) {
      if (communicators_[m] == nullptr) continue;
      UseDevice(ordinals_[m]);
      end(communicators_[m]);
    }
  }
  static size_t Count(int64_t bytes, const Operand& operand) { return static_cast<size_t>(bytes / DTypeBytes(operand.dtype)); }

  // One thread issues the calls of all members, which NCCL requires to be within one group call.
  template <typename F>
  void ForAll(Operands operands, Streams streams, const char* name, F&& call) {
    {
      const std::lock_guard lock(use_);
      ThrowIfEnded();
      Asking asking;
      for (size_t m = 0; m < ordinals_.size(); ++m) {
        GRADLOOM_CUDA(UseDevice(ordinals_[m]));
        for (const Operand& operand : operands[m]) CheckNccl(call(operand, communicators_[m], static_cast<cudaStream_t>(streams[m])), name);
      }
      asking.End(name);
    }
    Settle();
  }

  // Whether NCCL is still busy with the last call; nothing may be enqueued until it is done.
  bool InProgress() const {
    const std::lock_guard lock(use_);
    ThrowIfEnded();
    bool in_progress = false;
    for (ncclComm_t communicator : communicators_) {
      ncclResult_t state = ncclSuccess;
      CheckNccl(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
      CheckNccl(state, "an NCCL collective");
      in_progress = in_progress || state == ncclInProgress;
    }
    return in_progress;
  }

  void ThrowIfEnded() const {
    if (ended_) throw Error(ErrorCode::kDevice, "the communicator of the GPUs has been ended");
  }

  void Settle() const {
    auto since = std::chrono::steady_clock::now();
    while (InProgress()) {
      if (waiting_) waiting_(since);
      std::this_thread::yield();
    }
  }

  const std::vector<int> ordinals_;              // indexed by member; members may be gone before an abort that takes long has ended
  std::vector<ncclComm_t> communicators_;        // indexed by member
  std::atomic<bool> ended_ = false;              // aborted, perhaps by another thread while a launch of this one waits
  mutable std::timed_mutex use_;                 // held while the communicators are used, except to end them
  decltype(DistributedGroup::waiting) waiting_;  // empty: all members are in this process
};

}  // namespace

std::unique_ptr<DeviceGroup> NewNcclGroup(std::span<Device* const> members) { return std::make_unique<NcclGroup>(members); }

std::unique_ptr<DeviceGroup> JoinNcclGroup(std::span<Device* const> members, const DistributedGroup& distributed) {
  return std::make_unique<NcclGroup>(members, distributed);
}

std::string NewNcclId() {
  ncclUniqueId id;
  CheckNccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

}  // namespace gradloom::cuda

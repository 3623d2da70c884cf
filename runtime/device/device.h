// The interface of a device with its own memory: memory, streams, events, graphs, kernels. The CPU does not implement it: its executor
// works directly on threads and host memory.
//
// Functions do not wait for the device unless stated. All calls throw Error(kDevice), and Error(kResource) if memory runs out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/dtype.h"

namespace gradloom {

// Properties of a device, for users. Negative numbers are unknown.
struct DeviceProperties {
  int ordinal = 0;  // among the devices that the process sees
  std::string name;
  std::string pci_bus, uuid;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_total_bytes = 0, memory_free_bytes = 0;
  int64_t l2_bytes = 0, shared_bytes_per_block = 0;
  int memory_bus_bits = -1;
  std::vector<int> peers;  // ordinals of devices whose memory it can read directly
  int busy_percent = -1, temperature_c = -1, power_w = -1;
};

// Versions of the driver and the libraries, in their own numbering; 0: not installed.
struct PlatformVersions {
  int driver = 0, runtime = 0, cublas = 0, cudnn = 0, nccl = 0, nvrtc = 0;
};

// A captured sequence of work on one or several streams.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void Launch(void* stream) = 0;
};

// A fault that a kernel found in its data.
struct FoundFault {
  int site = 0;      // as given to NewKernel
  std::string what;  // "index 12 is out of range, there are 10"
};

// Streams and events are handles of the device; the device that made them deletes them.
class Device {
 public:
  virtual ~Device() = default;

  virtual int ordinal() const = 0;

  // Aligned to at least 256 bytes. Contents are undefined.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) noexcept = 0;
  // Pinned host memory, which copies access directly; null if the system refuses.
  virtual std::byte* AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(std::byte* memory) noexcept = 0;
  virtual int64_t free_bytes() = 0;

  virtual void* NewStream() = 0;
  virtual void DeleteStream(void* stream) noexcept = 0;
  virtual void* NewEvent(bool timed) = 0;
  virtual void DeleteEvent(void* event) noexcept = 0;

  virtual void Record(void* event, void* stream) = 0;
  // The same for a timed event. Its time is also available after a run of a graph in which this was captured.
  virtual void RecordTime(void* event, void* stream) = 0;
  // The stream waits until the event's last record has been reached.
  virtual void Wait(void* stream, void* event) = 0;
  // Copies between any of host memory and the memories of devices.
  virtual void Copy(void* to, const void* from, int64_t bytes, void* stream) = 0;
  virtual void Zero(void* to, int64_t bytes, void* stream) = 0;
  // Keeps the stream busy for about this time.
  virtual void Delay(int64_t nanoseconds, void* stream) = 0;

  // The stream waits for the work that others have enqueued by now in the default stream of device `ordinal`.
  virtual void WaitForDefaultStream(void* stream, int ordinal) = 0;

  // Waits until the stream has done all enqueued work.
  virtual void Synchronize(void* stream) = 0;
  // Whether the stream has done all enqueued work. Does not wait.
  virtual bool Done(void* stream) = 0;
  // Throws Error(kDevice) if the device has failed, so that what has been enqueued on it never ends. Does not wait.
  virtual void Check() {}
  // Whether nothing enqueued on its streams will still run: it is done, or the device has failed. Does not wait.
  virtual bool Idle() { return true; }
  // From now on nothing of this device is released, neither memory nor handles nor kernels. A release may wait for the device's work, which
  // never ends if it waits for another device that has failed. They are returned when the process ends.
  virtual void Abandon() noexcept {}
  // The time between two timed events that have been reached.
  virtual double Milliseconds(void* begin, void* end) = 0;

  // From now on, work that this thread enqueues on this stream, and on streams that wait for events of it, is captured and not run.
  // EndCapture requires that all those streams have joined again. An error ends the capture.
  virtual void BeginCapture(void* stream) = 0;
  virtual std::unique_ptr<DeviceGraph> EndCapture(void* stream) = 0;
  virtual void AbandonCapture(void* stream) noexcept = 0;

  // For profilers (NVTX): the name of a stream, and nested ranges of this thread's work. Nearly free without a profiler. `step`: the number
  // of the update that the work belongs to, the range's payload; -1: none.
  virtual void NameStream(void* stream, const std::string& name) = 0;
  virtual void BeginRange(const char* name, int64_t step) = 0;
  virtual void EndRange() noexcept = 0;

  // Which algorithms of the libraries the kernels use that are made from now on. All of them fit into the plan's scratch memory and give
  // the same bits in each run. Devices without libraries have no choice.
  enum class Algorithms : uint8_t {
    kFirst,     // the first choice of the libraries' heuristics
    kMeasured,  // the fastest: measured once, and kept for the same device, libraries and problem
    kGiven,     // those of `given`, the algorithms() of another process's device; for others the first
  };
  virtual void SetAlgorithms(Algorithms, const std::string& given = {}) { static_cast<void>(given); }
  // The choices made so far on such a device, for SetAlgorithms.
  virtual std::string algorithms() const { return {}; }
  // Notes for the user about the kernels made since the last call: where a slower kernel replaces one of a library.
  virtual std::vector<std::string> TakeNotes() { return {}; }

  // A kernel that NewKernel will be asked for.
  struct KernelRequest {
    const KernelRow* row = nullptr;
    KernelCall call;
    bool preserves_state = false;
  };
  // Compiles the code that the device generates for these kernels, on all cores of the host, so that NewKernel finds it. Errors are left to
  // NewKernel.
  virtual void CompileAhead(std::span<const KernelRequest>) {}
  // `site` is returned in a FoundFault. `preserves_state`: the kernel's outputs are state, which it must leave unchanged in a refused step;
  // only for rows that support it (KernelRow::preserves_state_on_refusal).
  virtual std::unique_ptr<Kernel> NewKernel(const KernelRow& row, const KernelCall& call, int site, bool preserves_state) = 0;
  // Copies within this device's memory, unless the step has been refused.
  virtual void CopyState(void* to, const void* from, int64_t bytes, void* stream) = 0;
  // Refuses the step, like a kernel that finds a fault, but without a fault for TakeFault.
  virtual void Refuse(void* stream) = 0;
  // Returns the first fault that a kernel has found since the last call, and clears the refusal. All work of the step must have ended.
  virtual std::optional<FoundFault> TakeFault() = 0;
};

// A range for profilers, as long as the object lives.
class DeviceRange {
 public:
  DeviceRange(Device& device, const char* name, int64_t step) : device_(device) { device.BeginRange(name, step); }
  ~DeviceRange() { device_.EndRange(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device& device_;
};

// Devices that take part in collectives: all of one process, or this process's members of a group over several processes.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  struct Operand {
    DType dtype = DType::kUndefined;
    const void* read = nullptr;
    void* write = nullptr;  // the same as read, or separate; null for a reduce to another member
    int64_t read_bytes = 0, write_bytes = 0;
    int root = 0;  // of a reduce: the member that gets the sum, an index over all members
  };
  // One collective of all members, enqueued on a stream of each member of this process. `operands`: by member of this process, with equal
  // numbers, types, sizes and roots. Every member gets the same bits. `root` is an index over all members.
  virtual void AllReduceSum(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void Broadcast(int root, std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void ReduceScatterSum(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void AllGather(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void ReduceSum(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;

  // Throws Error(kDevice) if enqueued work has failed. Does not wait.
  virtual void Check() {}
  // Ends work that waits for members of other processes; its results are undefined. The group cannot be used afterwards.
  virtual void Abort() noexcept {}
};

// A group whose members are in several processes.
struct DistributedGroup {
  std::string id;              // the result of DevicePlatform::NewGroupId in one of the processes; the same for the whole group
  int size = 0;                // number of members of all processes
  std::vector<int> positions;  // positions of this process's members, ascending
  // Called repeatedly while waiting for others, with the time at which the wait began; throws to give up.
  std::function<void(std::chrono::steady_clock::time_point& since)> waiting;
};

// The devices of one kind that a process can open.
class DevicePlatform {
 public:
  virtual ~DevicePlatform() = default;

  virtual const PlatformVersions& versions() const = 0;
  // As the driver numbers them for this process; empty if there is none, and then `problem` says why.
  virtual std::vector<DeviceProperties> devices() = 0;
  virtual std::string problem() const = 0;

  // The ordinal of the device whose memory this is; -1: host memory.
  virtual int OrdinalOf(const void* memory) = 0;
  // Whether all of this host memory is pinned, by whomever, so that copies from it need no other pinned memory.
  virtual bool Pinned(const void* memory, int64_t bytes) = 0;

  // Opens a logical device; several may be on one ordinal. Throws Error(kDevice) if it does not exist.
  virtual std::unique_ptr<Device> Open(int ordinal) = 0;
  // From now on, copies between these devices are direct if they can read each other's memory.
  virtual void ConnectPeers(std::span<Device* const>) {}
  // These devices share each step: if one of them refuses it, all do whose work comes after that, by events or a group.
  virtual void ShareRefusals(std::span<Device* const> members) = 0;
  // `members` outlive it.
  virtual std::unique_ptr<DeviceGroup> NewGroup(std::span<Device* const> members) = 0;
  // Waits for the other processes to join. No two members of the group are on one physical device.
  virtual std::unique_ptr<DeviceGroup> JoinGroup(std::span<Device* const> members, const DistributedGroup& distributed) = 0;
  // An id for one group, to pass to the other processes.
  virtual std::string NewGroupId() = 0;

  // Calls of a platform and its objects change the thread's current device, on which other libraries of the process rely. This makes the
  // one current again that was so before the thread's first of these calls since the last RestoreCurrentDevice.
  virtual void RestoreCurrentDevice() noexcept {}
};

// The platform of CUDA devices, from libgradloom_cuda.so, which is opened at the first call: beside the program, where
// GRADLOOM_CUDA_LIBRARY says, or in the system's search path. Null if there is none; `why`, if given, gets the reason.
DevicePlatform* CudaPlatform(std::string* why = nullptr);
// Calls RestoreCurrentDevice of that platform, unless it has never been opened. For functions that are called from other programs.
void RestoreCurrentDevice() noexcept;
// For tests: the result of CudaPlatform from now on; null: the library again.
void SetCudaPlatform(DevicePlatform* platform);

}  // namespace gradloom

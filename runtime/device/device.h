// A device with a memory of its own, as the executor sees it: memory, streams, events, graphs, kernels. The CPU is none: its executor works
// on threads and host memory directly.
//
// Nothing here waits for the device but what says so. All calls throw Error(kDevice), Error(kResource) for memory.
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

// What a person wants to know of a device. Negative numbers are not known.
struct DeviceProperties {
  int ordinal = 0;  // among those that the process sees
  std::string name;
  std::string pci_bus, uuid;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_total_bytes = 0, memory_free_bytes = 0;
  int64_t l2_bytes = 0, shared_bytes_per_block = 0;
  int memory_bus_bits = -1;
  std::vector<int> peers;  // ordinals of devices whose memory it reads directly
  int busy_percent = -1, temperature_c = -1, power_w = -1;
};

// Of the driver and the libraries, as they number themselves; 0: not there.
struct PlatformVersions {
  int driver = 0, runtime = 0, cublas = 0, cudnn = 0, nccl = 0, nvrtc = 0;
};

// A captured sequence of work on one or several streams.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void Launch(void* stream) = 0;
};

// What a kernel found wrong with its data.
struct FoundFault {
  int site = 0;      // as given to NewKernel
  std::string what;  // "index 12 is out of range, there are 10"
};

// Streams and events are the device's handles; they are deleted by the device that made them.
class Device {
 public:
  virtual ~Device() = default;

  virtual int ordinal() const = 0;

  // At least 256 bytes aligned. Contents are undefined.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) noexcept = 0;
  // Host memory that copies read and write directly; null where the system refuses.
  virtual std::byte* AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(std::byte* memory) noexcept = 0;
  virtual int64_t free_bytes() = 0;

  virtual void* NewStream() = 0;
  virtual void DeleteStream(void* stream) noexcept = 0;
  virtual void* NewEvent(bool timed) = 0;
  virtual void DeleteEvent(void* event) noexcept = 0;

  virtual void Record(void* event, void* stream) = 0;
  // The same of a timed event, whose time can be asked for, too, when a graph has run in which this was captured.
  virtual void RecordTime(void* event, void* stream) = 0;
  // The stream goes on when the event's last record has been reached.
  virtual void Wait(void* stream, void* event) = 0;
  // Between and of host memory and the memory of any device.
  virtual void Copy(void* to, const void* from, int64_t bytes, void* stream) = 0;
  virtual void Zero(void* to, int64_t bytes, void* stream) = 0;
  // Keeps the stream busy for about so long.
  virtual void Delay(int64_t nanoseconds, void* stream) = 0;

  // The stream goes on when what others have enqueued by now in the default stream of device `ordinal` has been done.
  virtual void WaitForDefaultStream(void* stream, int ordinal) = 0;

  // Returns when the stream has done all that was enqueued.
  virtual void Synchronize(void* stream) = 0;
  // Whether it has.
  virtual bool Done(void* stream) = 0;
  // Of two timed events that have been reached.
  virtual double Milliseconds(void* begin, void* end) = 0;

  // What this thread enqueues from now on, on this stream and on those that wait for events of it, is captured and not run. EndCapture
  // wants all those streams joined again. After an error the capture is over.
  virtual void BeginCapture(void* stream) = 0;
  virtual std::unique_ptr<DeviceGraph> EndCapture(void* stream) = 0;
  virtual void AbandonCapture(void* stream) noexcept = 0;

  // What profilers show (NVTX): the name of a stream, and ranges of this thread's work, which nest. Where none looks on, nearly nothing.
  virtual void NameStream(void* stream, const std::string& name) = 0;
  virtual void BeginRange(const std::string& name) = 0;
  virtual void EndRange() noexcept = 0;

  // Which of the libraries' algorithms kernels take that are made from now on, of those that keep to the plan's scratch memory and give the
  // same bits at each run. Devices without libraries have no choice.
  enum class Algorithms : uint8_t {
    kFirst,     // what the libraries' heuristics put first
    kMeasured,  // the fastest: measured once, and kept for the same device, libraries and problem
    kGiven,     // those of `given`, what algorithms() said of another process's device; the first for others
  };
  virtual void SetAlgorithms(Algorithms, const std::string& given = {}) { static_cast<void>(given); }
  // What was chosen on such a device so far, for SetAlgorithms.
  virtual std::string algorithms() const { return {}; }
  // What a person should know of the kernels that have been made since the last call: where a slower one stands in for one of a library.
  virtual std::vector<std::string> TakeNotes() { return {}; }

  // `site` comes back in a FoundFault. `keeps_state`: outputs of the kernel are what lives between steps, which it leaves as it is in a
  // step that has been refused; for rows that can (KernelRow::keeps_state).
  virtual std::unique_ptr<Kernel> NewKernel(const KernelRow& row, const KernelCall& call, int site, bool keeps_state) = 0;
  // Copy within this device's memory that is not done in a step that has been refused.
  virtual void CopyState(void* to, const void* from, int64_t bytes, void* stream) = 0;
  // Refuses the step, as a kernel does that finds a fault, but there is none to be taken.
  virtual void Refuse(void* stream) = 0;
  // The first fault that a kernel has found since the last call. Waits for the device. From here on nothing is refused.
  virtual std::optional<FoundFault> TakeFault() = 0;
};

// A range that profilers show, while the object lives.
class DeviceRange {
 public:
  DeviceRange(Device& device, const std::string& name) : device_(device) { device.BeginRange(name); }
  ~DeviceRange() { device_.EndRange(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device& device_;
};

// Devices that meet in collectives: all of one process, or those that one of several processes has of them.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  struct Operand {
    DType dtype = DType::kUndefined;
    const void* read = nullptr;
    void* write = nullptr;  // the same as read, or apart
    int64_t read_bytes = 0, write_bytes = 0;
  };
  // One collective of all members, enqueued on a stream of each of this process. `operands` by member of this process: as many of the same
  // types and sizes. Every member gets the same bits. `root` counts all members.
  virtual void AllReduceSum(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void Broadcast(int root, std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void ReduceScatterSum(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;
  virtual void AllGather(std::span<const std::vector<Operand>> operands, std::span<void* const> streams) = 0;

  // Throws Error(kDevice) where something that was enqueued has failed since; waits for nothing.
  virtual void Check() {}
  // Ends what waits for members of other processes; what it was to give is undefined. Nothing else may be asked of the group then.
  virtual void Abort() noexcept {}
};

// A group whose members are in several processes.
struct DeviceMeeting {
  std::string id;              // what DevicePlatform::NewMeeting gave one of the processes, the same for all of the group
  int size = 0;                // members of all processes
  std::vector<int> positions;  // of this process's members among them, ascending
  // Called again and again while others are waited for, with when that began; throws to give them up.
  std::function<void(std::chrono::steady_clock::time_point& since)> waiting;
};

// The devices of one kind that a process can open.
class DevicePlatform {
 public:
  virtual ~DevicePlatform() = default;

  virtual const PlatformVersions& versions() const = 0;
  // As the driver numbers them for this process; empty where there is none, and then `problem` says why.
  virtual std::vector<DeviceProperties> devices() = 0;
  virtual std::string problem() const = 0;

  // On which device memory is; -1: it is the host's.
  virtual int OrdinalOf(const void* memory) = 0;

  // A logical device: several may be on one ordinal. Throws Error(kDevice) for one that is not there.
  virtual std::unique_ptr<Device> Open(int ordinal) = 0;
  // Copies between these devices go directly from now on, where they can read each other's memory.
  virtual void ConnectPeers(std::span<Device* const>) {}
  // These devices share each step: what one of them refuses, all do, where events or a group have put their work behind it.
  virtual void ShareRefusals(std::span<Device* const> members) = 0;
  // `members` outlive it.
  virtual std::unique_ptr<DeviceGroup> NewGroup(std::span<Device* const> members) = 0;
  // Returns when the other processes have come to it, too. No two members of the group are on one physical device.
  virtual std::unique_ptr<DeviceGroup> JoinGroup(std::span<Device* const> members, const DeviceMeeting& meeting) = 0;
  // An id for one group, of which the other processes are told.
  virtual std::string NewMeeting() = 0;
};

// The platform of CUDA devices, from the library that is opened at the first call: libgradloom_cuda.so beside the program, where
// GRADLOOM_CUDA_LIBRARY says, or where the system looks for libraries. Null where there is none, and then `why`, if given, gets the reason.
DevicePlatform* CudaPlatform(std::string* why = nullptr);
// For tests: what CudaPlatform gives from now on; null: the library again.
void SetCudaPlatform(DevicePlatform* platform);

}  // namespace gradloom

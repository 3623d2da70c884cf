#include "tests/exec/plain_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Work = std::function<void()>;

int graph_launches = 0;

int64_t InPages(int64_t bytes) { return AlignUp(bytes + 1, ::sysconf(_SC_PAGESIZE)); }

// The memory blocks that the device has allocated. Only work of the device can touch them, as on a GPU: elsewhere an access is a fault.
class Blocks {
 public:
  std::byte* Add(int64_t bytes) {
    void* const memory =
        ::mmap(nullptr, static_cast<size_t>(InPages(bytes)), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    blocks_[static_cast<std::byte*>(memory)] = bytes;
    return static_cast<std::byte*>(memory);
  }
  void Remove(std::byte* memory) {
    ::munmap(memory, static_cast<size_t>(InPages(blocks_.at(memory))));
    blocks_.erase(memory);
  }
  bool Contain(const void* memory) const {
    auto block = blocks_.upper_bound(static_cast<std::byte*>(const_cast<void*>(memory)));
    if (block == blocks_.begin()) return false;
    --block;
    return static_cast<const std::byte*>(memory) < block->first + block->second;
  }
  void Do(const Work& work) const {
    Allow(PROT_READ | PROT_WRITE);
    work();
    Allow(PROT_NONE);
  }

 private:
  void Allow(int access) const {
    for (const auto& [memory, bytes] : blocks_) ::mprotect(memory, static_cast<size_t>(InPages(bytes)), access);
  }

  std::map<std::byte*, int64_t> blocks_;
};

// The work enqueued during a capture, in that order, which satisfies all events.
class PlainGraph : public DeviceGraph {
 public:
  PlainGraph(const Blocks& blocks, std::vector<Work> work) : blocks_(blocks), work_(std::move(work)) {}
  void Launch(void*) override {
    ++graph_launches;
    for (const Work& work : work_) blocks_.Do(work);
  }

 private:
  const Blocks& blocks_;
  std::vector<Work> work_;
};

// All work of a device goes through this queue: it is done at once, or recorded during a capture.
class Queue {
 public:
  explicit Queue(const Blocks& blocks) : blocks_(blocks) {}
  void Do(Work work) {
    if (capturing_) return captured_.push_back(std::move(work));
    blocks_.Do(work);
  }
  void Begin() { capturing_ = true; }
  std::vector<Work> End() {
    capturing_ = false;
    return std::exchange(captured_, {});
  }

 private:
  const Blocks& blocks_;
  bool capturing_ = false;
  std::vector<Work> captured_;
};

// Kernels of plans may write where they read, but reference kernels may not, so inputs are copied first.
class PlainKernel : public Kernel {
 public:
  // If `*keeps` is true, outputs stay as they are.
  PlainKernel(KernelCall call, Queue& queue, const bool* keeps) : call_(std::move(call)), queue_(queue), keeps_(keeps) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    std::vector<const void*> from(inputs, inputs + call_.inputs.size());
    std::vector<void*> to(outputs, outputs + call_.outputs.size());
    queue_.Do([this, from = std::move(from), to = std::move(to)] {
      if (keeps_ != nullptr && *keeps_) return;
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < from.size(); ++i) {
        const OperandType& type = call_.inputs[i];
        tensors.push_back(type.present() ? Tensor::Copy({type.dtype, type.shape, from[i]}) : Tensor());
      }
      const std::vector<Tensor> made = RunReference(call_, tensors);
      for (size_t i = 0; i < to.size(); ++i) {
        if (to[i] != nullptr) std::memcpy(to[i], made[i].data(), static_cast<size_t>(made[i].bytes()));
      }
    });
  }

 private:
  const KernelCall call_;
  Queue& queue_;
  const bool* const keeps_;
};

struct Event {
  std::chrono::steady_clock::time_point reached;
};

class PlainDevice : public Device {
 public:
  explicit PlainDevice(Blocks& blocks) : blocks_(blocks), queue_(blocks) {}

  int ordinal() const override { return 0; }

  std::byte* Allocate(int64_t bytes) override { return blocks_.Add(bytes); }
  void Free(std::byte* memory) noexcept override { blocks_.Remove(memory); }
  std::byte* AllocatePinned(int64_t) override { return nullptr; }
  void FreePinned(std::byte*) noexcept override {}
  int64_t free_bytes() override { return int64_t{1} << 30; }

  void* NewStream() override { return new char; }
  void DeleteStream(void* stream) noexcept override { delete static_cast<char*>(stream); }
  void* NewEvent(bool) override { return new Event; }
  void DeleteEvent(void* event) noexcept override { delete static_cast<Event*>(event); }

  // Streams execute everything in the order of the calls, so there is nothing to wait for.
  void Record(void* event, void*) override {
    queue_.Do([event] { static_cast<Event*>(event)->reached = std::chrono::steady_clock::now(); });
  }
  void RecordTime(void* event, void* stream) override { Record(event, stream); }
  void Wait(void*, void*) override {}
  void WaitForDefaultStream(void*, int) override {}
  void Delay(int64_t, void*) override {}
  void Synchronize(void*) override {}
  bool Done(void*) override { return true; }
  double Milliseconds(void* begin, void* end) override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(end)->reached - static_cast<Event*>(begin)->reached).count();
  }

  void Copy(void* to, const void* from, int64_t bytes, void*) override {
    if (bytes > 0) queue_.Do([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  void Zero(void* to, int64_t bytes, void*) override {
    if (bytes > 0) queue_.Do([=] { std::memset(to, 0, static_cast<size_t>(bytes)); });
  }

  void BeginCapture(void*) override { queue_.Begin(); }
  std::unique_ptr<DeviceGraph> EndCapture(void*) override { return std::make_unique<PlainGraph>(blocks_, queue_.End()); }
  void AbandonCapture(void*) noexcept override { queue_.End(); }

  void NameStream(void*, const std::string&) override {}
  void BeginRange(const char*, int64_t) override {}
  void EndRange() noexcept override {}

  std::unique_ptr<Kernel> NewKernel(const KernelRow&, const KernelCall& call, int, bool preserves_state) override {
    for (const auto* operands : {&call.inputs, &call.outputs}) {
      for (const OperandType& operand : *operands) {
        if (!operand.layout.plain()) throw Error(ErrorCode::kUnsupported, call.op + " in the layout " + operand.layout.ToString());
      }
    }
    return std::make_unique<PlainKernel>(call, queue_, preserves_state ? &refused_ : nullptr);
  }
  void CopyState(void* to, const void* from, int64_t bytes, void*) override {
    if (bytes == 0) return;
    queue_.Do([=, this] {
      if (!refused_) std::memcpy(to, from, static_cast<size_t>(bytes));
    });
  }
  void Refuse(void*) override {
    queue_.Do([this] { refused_ = true; });
  }
  // The reference reports faulty data immediately, as an error, and nothing after it runs.
  std::optional<FoundFault> TakeFault() override {
    refused_ = false;
    return std::nullopt;
  }

 private:
  Blocks& blocks_;
  Queue queue_;
  bool refused_ = false;  // in the current step
};

class Platform : public DevicePlatform {
 public:
  const PlatformVersions& versions() const override { return versions_; }
  std::vector<DeviceProperties> devices() override {
    return {{.name = "plain", .compute_major = 9, .memory_total_bytes = int64_t{1} << 30}};
  }
  std::string problem() const override { return ""; }

  int OrdinalOf(const void* memory) override { return blocks_.Contain(memory) ? 0 : -1; }
  bool Pinned(const void*, int64_t) override { return false; }

  std::unique_ptr<Device> Open(int ordinal) override {
    if (ordinal != 0) throw Error(ErrorCode::kDevice, "there is one device, cuda:0");
    return std::make_unique<PlainDevice>(blocks_);
  }
  void ShareRefusals(std::span<Device* const>) override {}
  std::unique_ptr<DeviceGroup> NewGroup(std::span<Device* const>) override { return NoGroups(); }
  std::unique_ptr<DeviceGroup> JoinGroup(std::span<Device* const>, const DistributedGroup&) override { return NoGroups(); }
  std::string NewGroupId() override { return ""; }

 private:
  static std::unique_ptr<DeviceGroup> NoGroups() { throw Error(ErrorCode::kUnsupported, "plain devices have no groups"); }

  const PlatformVersions versions_;
  Blocks blocks_;
};

}  // namespace

DevicePlatform& PlainPlatform() {
  static Platform platform;
  return platform;
}

int PlainGraphLaunches() { return graph_launches; }

}  // namespace gradloom

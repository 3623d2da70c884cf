#include "runtime/device/cuda/device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/delay.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/step_refusal.h"
#include "runtime/device/cuda/use_device.h"
#include "runtime/device/cuda/versions.h"

namespace gradloom::cuda {
namespace {

cudaStream_t Stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t Event(void* event) { return static_cast<cudaEvent_t>(event); }

// Gradloom's domain in profilers, created once.
nvtxDomainHandle_t OurDomain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("gradloom");
  return domain;
}

// The text that the reference kernels use, as far as two numbers suffice.
std::string TextOf(const DataFault& fault) {
  const std::string value = std::to_string(fault.value), limit = std::to_string(fault.limit);
  switch (fault.kind) {
    case kDivisionByZero: return "element " + value + " of " + limit + " is divided by zero";
    case kUnequalExtents: return "operands that have to have the same extent have " + value + " and " + limit + " elements with this batch";
    case kUnequalCounts: return value + " elements with this batch, not " + limit;
    case kCapacityExceeded: return value + " elements with this batch, there is room for " + limit;
    case kLengthOutOfRange: return "a sequence of length " + value + ", there are " + limit + " steps";
    case kFrequencyTooHigh: return "a frequency past half the sample rate";
    case kTreeCycle: return "the nodes of a tree go in a circle";
    default: return "index " + value + " is out of range, there are " + limit;
  }
}

// The properties that the timings of library algorithms depend on.
std::string EnvironmentOf(int ordinal) {
  cudaDeviceProp device{};
  GRADLOOM_CUDA(cudaGetDeviceProperties(&device, ordinal));
  const PlatformVersions v = ReadVersions();
  std::string text = device.name;
  for (int number : {device.major, device.minor, device.multiProcessorCount, v.driver, v.runtime, v.cublas, v.cudnn})
    text += " " + std::to_string(number);
  return text;
}

// Whether Device::Abandon was called; shared with what the device has made.
using Abandoned = std::shared_ptr<std::atomic<bool>>;

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(int ordinal, Abandoned abandoned, cudaGraph_t graph) : ordinal_(ordinal), abandoned_(std::move(abandoned)) {
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    CheckCuda(error, "cudaGraphInstantiate");
  }
  ~CudaGraph() override {
    if (*abandoned_) return;
    UseDevice(ordinal_);
    cudaGraphExecDestroy(exec_);
  }
  void Launch(void* stream) override {
    GRADLOOM_CUDA(UseDevice(ordinal_));
    GRADLOOM_CUDA(cudaGraphLaunch(exec_, Stream(stream)));
  }

 private:
  int ordinal_;
  Abandoned abandoned_;
  cudaGraphExec_t exec_ = nullptr;
};

// Sets the device: kernel launches and library calls use the thread's current device, and the streams of several devices are issued from
// one thread.
class KernelOnDevice : public Kernel {
 public:
  KernelOnDevice(int ordinal, Abandoned abandoned, std::unique_ptr<Kernel> kernel)
      : ordinal_(ordinal), abandoned_(std::move(abandoned)), kernel_(std::move(kernel)) {}
  // A kernel may own memory.
  ~KernelOnDevice() override {
    if (*abandoned_) {
      static_cast<void>(kernel_.release());
    } else {
      UseDevice(ordinal_);
    }
  }
  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    GRADLOOM_CUDA(UseDevice(ordinal_));
    kernel_->Run(inputs, outputs, scratch, stream);
  }

 private:
  int ordinal_;
  Abandoned abandoned_;
  std::unique_ptr<Kernel> kernel_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {
    Use();
    libraries_ = std::make_unique<Libraries>(ordinal);
    libraries_->algorithms().SetEnvironment(EnvironmentOf(ordinal));
    fault_.reset(Allocate(sizeof(DataFault)));
    reported_.reset(reinterpret_cast<int32_t*>(AllocatePinned(sizeof(int32_t))));
    SetRefusalWords({});
  }
  // Its members are released.
  ~CudaDevice() override {
    if (*abandoned_) {
      static_cast<void>(libraries_.release());
      static_cast<void>(fault_.release());
      static_cast<void>(peer_flags_.release());
      static_cast<void>(reported_.release());
    } else {
      UseDevice(ordinal_);
    }
  }

  int ordinal() const override { return ordinal_; }

  std::byte* Allocate(int64_t bytes) override {
    Use();
    void* memory = nullptr;
    GRADLOOM_CUDA(cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
    return static_cast<std::byte*>(memory);
  }
  void Free(std::byte* memory) noexcept override {
    if (*abandoned_) return;
    UseDevice(ordinal_);
    cudaFree(memory);
  }
  std::byte* AllocatePinned(int64_t bytes) override {
    Use();
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();  // clears the error, which the next launch would report otherwise
      return nullptr;
    }
    return static_cast<std::byte*>(memory);
  }
  void FreePinned(std::byte* memory) noexcept override {
    if (*abandoned_) return;
    UseDevice(ordinal_);
    cudaFreeHost(memory);
  }
  int64_t free_bytes() override {
    Use();
    size_t free = 0, total = 0;
    GRADLOOM_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  void* NewStream() override {
    Use();
    cudaStream_t stream = nullptr;
    // A non-blocking stream: it does not synchronize with the legacy default stream, which other code may use.
    GRADLOOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const std::lock_guard lock(streams_mutex_);
    streams_.push_back(stream);
    return stream;
  }
  void DeleteStream(void* stream) noexcept override {
    {
      const std::lock_guard lock(streams_mutex_);
      std::erase(streams_, Stream(stream));
    }
    if (*abandoned_) return;
    UseDevice(ordinal_);
    cudaStreamDestroy(Stream(stream));
  }
  void* NewEvent(bool timed) override {
    Use();
    cudaEvent_t event = nullptr;
    GRADLOOM_CUDA(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }
  void DeleteEvent(void* event) noexcept override {
    if (*abandoned_) return;
    UseDevice(ordinal_);
    cudaEventDestroy(Event(event));
  }

  void Record(void* event, void* stream) override {
    Use();
    GRADLOOM_CUDA(cudaEventRecord(Event(event), Stream(stream)));
  }
  void RecordTime(void* event, void* stream) override {
    Use();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    GRADLOOM_CUDA(cudaStreamIsCapturing(Stream(stream), &status));
    const bool captured = status == cudaStreamCaptureStatusActive;
    GRADLOOM_CUDA(cudaEventRecordWithFlags(Event(event), Stream(stream), captured ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void Wait(void* stream, void* event) override {
    Use();
    GRADLOOM_CUDA(cudaStreamWaitEvent(Stream(stream), Event(event), 0));
  }
  void Copy(void* to, const void* from, int64_t bytes, void* stream) override {
    if (bytes == 0) return;
    Use();
    GRADLOOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, Stream(stream)));
  }
  void Zero(void* to, int64_t bytes, void* stream) override {
    if (bytes == 0) return;
    Use();
    GRADLOOM_CUDA(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), Stream(stream)));
  }
  void Delay(int64_t nanoseconds, void* stream) override {
    Use();
    EnqueueDelay(nanoseconds, Stream(stream));
  }

  void WaitForDefaultStream(void* stream, int ordinal) override {
    GRADLOOM_CUDA(UseDevice(ordinal));
    cudaEvent_t event = nullptr;
    GRADLOOM_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const cudaError_t recorded = cudaEventRecord(event, nullptr);
    Use();
    const cudaError_t waits = recorded == cudaSuccess ? cudaStreamWaitEvent(Stream(stream), event, 0) : recorded;
    cudaEventDestroy(event);  // the event is released once it has been reached
    CheckCuda(waits, "cudaStreamWaitEvent");
  }

  void Synchronize(void* stream) override {
    Use();
    GRADLOOM_CUDA(cudaStreamSynchronize(Stream(stream)));
  }
  bool Done(void* stream) override {
    const cudaError_t state = StateOf(Stream(stream));
    if (state == cudaErrorNotReady) return false;
    CheckCuda(state, "cudaStreamQuery");
    return true;
  }
  // Every call that looks at a device's work reports an error that the device has run into, also if other work caused it.
  void Check() override {
    const cudaError_t state = [this] {
      const std::lock_guard lock(streams_mutex_);
      return streams_.empty() ? UseDevice(ordinal_) : StateOf(streams_.front());
    }();
    if (state == cudaSuccess || state == cudaErrorNotReady) return;
    throw Error(ErrorCode::kDevice,
                "cuda:" + std::to_string(ordinal_) + " has failed: " + cudaGetErrorName(state) + ": " + cudaGetErrorString(state), "",
                "the log of the driver may say why: dmesg | grep Xid");
  }
  bool Idle() override {
    const std::lock_guard lock(streams_mutex_);
    return std::none_of(streams_.begin(), streams_.end(), [this](cudaStream_t stream) { return StateOf(stream) == cudaErrorNotReady; });
  }
  void Abandon() noexcept override {
    *abandoned_ = true;
    // The last owner would free the word.
    if (shared_ != nullptr) new std::shared_ptr<int32_t>(shared_);
  }
  double Milliseconds(void* begin, void* end) override {
    float ms = 0;
    GRADLOOM_CUDA(cudaEventElapsedTime(&ms, Event(begin), Event(end)));
    return static_cast<double>(ms);
  }

  void BeginCapture(void* stream) override {
    Use();
    // Thread-local capture: another thread may be copying inputs meanwhile.
    GRADLOOM_CUDA(cudaStreamBeginCapture(Stream(stream), cudaStreamCaptureModeThreadLocal));
  }
  std::unique_ptr<DeviceGraph> EndCapture(void* stream) override {
    cudaGraph_t graph = nullptr;
    GRADLOOM_CUDA(cudaStreamEndCapture(Stream(stream), &graph));
    return std::make_unique<CudaGraph>(ordinal_, abandoned_, graph);
  }
  void AbandonCapture(void* stream) noexcept override {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(Stream(stream), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }

  void NameStream(void* stream, const std::string& name) override { nvtxNameCudaStreamA(Stream(stream), name.c_str()); }
  void BeginRange(const char* name, int64_t step) override {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    if (step >= 0) {
      range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      range.payload.llValue = step;
    }
    nvtxDomainRangePushEx(OurDomain(), &range);
  }
  void EndRange() noexcept override { nvtxDomainRangePop(OurDomain()); }

  void SetAlgorithms(Device::Algorithms algorithms, const std::string& given) override {
    using Mode = cuda::Algorithms::Mode;
    const Mode mode = algorithms == Device::Algorithms::kMeasured ? Mode::kMeasured
                      : algorithms == Device::Algorithms::kGiven  ? Mode::kGiven
                                                                  : Mode::kFirst;
    if (std::string what = libraries_->algorithms().Set(mode, given); !what.empty()) libraries_->Note(std::move(what));
  }
  std::string algorithms() const override { return libraries_->algorithms().text(); }
  std::vector<std::string> TakeNotes() override { return libraries_->TakeNotes(); }

  void CompileAhead(std::span<const KernelRequest> kernels) override {
    std::set<std::string> sources;
    for (const KernelRequest& kernel : kernels) sources.insert(GeneratedSource(*kernel.row, kernel.call, kernel.preserves_state));
    sources.erase("");
    libraries_->CompileAhead(sources);
  }
  std::unique_ptr<Kernel> NewKernel(const KernelRow& row, const KernelCall& call, int site, bool preserves_state) override {
    Use();
    const int32_t* const word = preserves_state ? refused() : nullptr;
    return std::make_unique<KernelOnDevice>(ordinal_, abandoned_, MakeCudaKernel(row, call, {site, fault(), libraries_.get(), word}));
  }
  void CopyState(void* to, const void* from, int64_t bytes, void* stream) override {
    Use();
    EnqueueStateCopy(to, from, bytes, refused(), Stream(stream));
  }
  void Refuse(void* stream) override {
    Use();
    EnqueueRefusal(fault(), Stream(stream));
  }
  std::optional<FoundFault> TakeFault() override {
    if (reported_ != nullptr && std::atomic_ref(*reported_).load(std::memory_order_acquire) == 0) return std::nullopt;
    Use();
    DataFault found;
    GRADLOOM_CUDA(cudaMemcpy(&found, fault(), sizeof found, cudaMemcpyDefault));
    if (reported_ != nullptr) *reported_ = 0;
    if (shared_ != nullptr) *shared_ = 0;
    if (found.site < 0 && found.refused == 0) return std::nullopt;
    ClearFault();
    if (found.site < 0) return std::nullopt;
    return FoundFault{found.site, TextOf(found)};
  }

  // Sets the words in which a refusal is recorded besides this device's own: those of the other devices, or one in host memory that all
  // devices read.
  void SetRefusalWords(std::vector<int32_t*> words) {
    Use();
    if (reported_ != nullptr) words.push_back(reported_.get());
    if (!words.empty()) {
      peer_flags_.reset(Allocate(static_cast<int64_t>(words.size() * sizeof(int32_t*))));
      Upload(peer_flags_.get(), words.data(), words.size() * sizeof(int32_t*));
    }
    num_peer_flags_ = static_cast<int32_t>(words.size());
    ClearFault();
  }
  int32_t* refused() const { return shared_ != nullptr ? shared_.get() : &fault()->refused; }
  int32_t* reported() const { return reported_.get(); }
  void SetSharedRefusal(std::shared_ptr<int32_t> shared) { shared_ = std::move(shared); }

 private:
  void Use() { GRADLOOM_CUDA(UseDevice(ordinal_)); }
  // The result of a query, which CUDA keeps as an error that the next launch would report.
  cudaError_t StateOf(cudaStream_t stream) {
    const cudaError_t used = UseDevice(ordinal_), state = used == cudaSuccess ? cudaStreamQuery(stream) : used;
    cudaGetLastError();
    return state;
  }
  DataFault* fault() const { return reinterpret_cast<DataFault*>(fault_.get()); }
  void ClearFault() {
    DataFault none;
    none.num_peer_flags = num_peer_flags_;
    none.peer_flags = reinterpret_cast<int32_t* const*>(peer_flags_.get());
    Upload(fault(), &none, sizeof none);
  }
  // A copy from pageable memory may return before its transfer to the device has finished, and the streams of steps do not wait for the
  // default stream.
  static void Upload(void* to, const void* from, size_t bytes) {
    GRADLOOM_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    GRADLOOM_CUDA(cudaStreamSynchronize(nullptr));
  }

  struct FreeMemory {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  using OwnMemory = std::unique_ptr<std::byte, FreeMemory>;  // device memory
  struct FreePinnedWord {
    void operator()(int32_t* word) const { cudaFreeHost(word); }
  };

  int ordinal_;
  Abandoned abandoned_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex streams_mutex_;           // sessions on several threads copy on one device
  std::vector<cudaStream_t> streams_;  // those that exist
  std::unique_ptr<Libraries> libraries_;
  OwnMemory fault_, peer_flags_;  // a DataFault, and the addresses that it points to
  int32_t num_peer_flags_ = 0;
  // Host memory, nonzero once a step has been refused: the host looks at it after each step, without a call of CUDA. Null if the system
  // refuses pinned memory; then the host reads the fault.
  std::unique_ptr<int32_t, FreePinnedWord> reported_;
  std::shared_ptr<int32_t> shared_;  // one word for all devices of a step that cannot read each other's memory; null: the fault's own word
};

}  // namespace

void ShareRefusals(std::span<Device* const> members, bool readable) {
  std::vector<CudaDevice*> devices;
  for (Device* const member : members) devices.push_back(static_cast<CudaDevice*>(member));
  // Each device that has been refused must be cleared after the step, so its host's word is set as well.
  const auto others_than = [&](const CudaDevice* device, bool refused) {
    std::vector<int32_t*> words;
    for (CudaDevice* const other : devices) {
      if (other == device) continue;
      if (refused) words.push_back(other->refused());
      if (other->reported() != nullptr) words.push_back(other->reported());
    }
    return words;
  };
  if (readable) {
    for (CudaDevice* const device : devices) device->SetRefusalWords(others_than(device, true));
    return;
  }
  auto* const word = reinterpret_cast<int32_t*>(devices[0]->AllocatePinned(sizeof(int32_t)));
  if (word == nullptr) {
    throw Error(ErrorCode::kResource,
                "cannot allocate 4 bytes of pinned memory, which GPUs without peer access need to report a refused batch", "",
                "raise the limit of locked memory (ulimit -l)");
  }
  *word = 0;
  const std::shared_ptr<int32_t> shared(word, [](int32_t* memory) { cudaFreeHost(memory); });
  for (CudaDevice* const device : devices) {
    std::vector<int32_t*> words = others_than(device, false);
    words.push_back(word);
    device->SetRefusalWords(std::move(words));
    device->SetSharedRefusal(shared);
  }
}

std::unique_ptr<Device> OpenDevice(int ordinal) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  cudaGetLastError();
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorCode::kDevice, "there is no device cuda:" + std::to_string(ordinal) + "; this process sees " + std::to_string(count),
                "", "CUDA_VISIBLE_DEVICES selects the devices   see: gradloom devices");
  }
  return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace gradloom::cuda

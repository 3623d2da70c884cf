#include "tests/cuda/emulated_runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/emulated_launch.h"
#include "tests/cuda/emulated_world.h"

namespace gradloom::emulated {
namespace {

// Per-thread state of the runtime.
thread_local int the_device = 0;
thread_local cudaError_t the_last_error = cudaSuccess;
thread_local std::unique_ptr<Capture> the_capture;  // only one at a time

cudaError_t Fail(cudaError_t error) { return the_last_error = error; }

// Calls that need a context make one on the thread's current device.
void NeedContext() { TheWorld().contexts.insert(the_device); }

std::unique_lock<std::recursive_mutex> Locked() { return std::unique_lock(TheWorld().mutex); }

CUstream_st* StreamOf(cudaStream_t stream) { return stream == nullptr ? &TheWorld().legacy : stream; }

// Whether calls of this thread that are illegal during a capture must be refused.
bool Capturing() { return the_capture != nullptr; }

// Whether any thread captures. What concerns the whole device is refused then.
bool AnyCapture() {
  const auto& streams = TheWorld().streams;
  return std::any_of(streams.begin(), streams.end(), [](const auto& stream) { return stream->capture != 0; });
}

bool FailsNow() {
  int& left = TheWorld().options.fails_after;
  if (left < 0) return false;
  return left-- == 0;
}

// The legacy stream belongs to the current device.
int DeviceOf(cudaStream_t stream) { return stream == nullptr ? the_device : stream->device; }

bool Lost(int device) {
  World& world = TheWorld();
  return device >= 0 && device == world.options.lost_device && world.work_done[device] >= world.options.lost_after;
}

cudaError_t EnqueuePolled(cudaStream_t given, std::string what, std::function<bool()> run, std::vector<WorkPtr> after,
                          std::function<bool()> ended = nullptr) {
  World& world = TheWorld();
  CUstream_st* const stream = StreamOf(given);
  if (FailsNow() || Lost(DeviceOf(given))) return Fail(cudaErrorLaunchFailure);
  world.calls.push_back({std::move(what), stream->number, stream->capture != 0});
  auto work = std::make_shared<Work>(Work{std::move(run), std::move(after), DeviceOf(given), std::move(ended)});
  if (stream->capture != 0) {
    if (!Capturing() || the_capture->number != stream->capture) return Fail(cudaErrorStreamCaptureWrongThread);
    if (stream->captured != nullptr) work->after.push_back(stream->captured);
    stream->captured = work;
    the_capture->graph.work.emplace_back(stream->number, work);
    return cudaSuccess;
  }
  if (Capturing() && given == nullptr) return Fail(cudaErrorStreamCaptureImplicit);
  stream->queue.push_back(work);
  stream->last = work;
  return cudaSuccess;
}

cudaError_t Enqueue(cudaStream_t given, std::string what, std::function<void()> run, std::vector<WorkPtr> after = {}) {
  const auto lock = Locked();
  std::function<bool()> asking;
  if (run) asking = [run = std::move(run)] { return run(), true; };
  return EnqueuePolled(given, std::move(what), std::move(asking), std::move(after));
}

// `done` tells whether an item that precedes this one is done.
template <typename Done>
bool Ready(const Work& work, const Done& done) {
  if (Lost(work.device)) return false;
  return (work.ended && work.ended()) || std::all_of(work.after.begin(), work.after.end(), done);
}

// Runs ready work in a random order until `until` returns true or nothing can proceed. Returns whether some work waits for other processes,
// or may wait for a device that has failed.
template <typename Until>
bool Advance(Until until) {
  const auto lock = Locked();
  World& world = TheWorld();
  std::set<const Work*> waiting;
  while (!until()) {
    std::vector<CUstream_st*> ready;
    const auto look = [&](CUstream_st& stream) {
      const auto done = [](const WorkPtr& before) { return before->done; };
      if (!stream.queue.empty() && Ready(*stream.queue.front(), done) && !waiting.contains(stream.queue.front().get()))
        ready.push_back(&stream);
    };
    look(world.legacy);
    for (const auto& stream : world.streams) look(*stream);
    if (ready.empty()) return !waiting.empty() || DeviceLost();
    CUstream_st& chosen = *ready[world.random() % ready.size()];
    const WorkPtr work = chosen.queue.front();
    if (work->run && !work->run()) {
      waiting.insert(work.get());
      continue;
    }
    chosen.queue.pop_front();
    ++world.work_done[work->device];
    work->done = true;
    work->after.clear();
    work->run = nullptr;
    waiting.clear();  // it may have been what they waited for
  }
  return false;
}

// Like Advance, but also waits for other processes when necessary.
template <typename Until>
void AdvanceWaiting(Until until) {
  while (Advance(until)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// A launch of a graph: its nodes as one work item, run in a random order that respects the captured dependencies.
class GraphRun {
 public:
  explicit GraphRun(const CUgraph_st& graph) : kept_(graph.kept) {
    for (const auto& [stream, work] : graph.work) left_.push_back(work);
  }

  // Returns whether all nodes have run. Nodes that wait for other processes are called again.
  bool Continue() {
    std::set<const Work*> waiting;
    while (!left_.empty()) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < left_.size(); ++i) {
        const auto over = [&](const WorkPtr& before) { return before->done || done_.contains(before.get()); };
        if (!waiting.contains(left_[i].get()) && Ready(*left_[i], over)) ready.push_back(i);
      }
      if (ready.empty()) return false;
      const size_t chosen = ready[TheWorld().random() % ready.size()];
      if (left_[chosen]->run && !left_[chosen]->run()) {
        waiting.insert(left_[chosen].get());
        continue;
      }
      ++TheWorld().work_done[left_[chosen]->device];
      done_.insert(left_[chosen].get());
      left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(chosen));
      waiting.clear();
    }
    return true;
  }

 private:
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<WorkPtr> left_;
  std::set<const Work*> done_;
};

int ComputeMajor(int device) {
  const Options& options = TheWorld().options;
  return device < options.devices - options.older ? 9 : 8;
}

constexpr int kPoison = 0xCB;  // reads as a large negative float, and as an index out of range

cudaError_t AllocateMemory(void** address, size_t bytes, int device) {
  const auto lock = Locked();
  NeedContext();
  World& world = TheWorld();
  if (Capturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  int64_t taken = 0;
  for (const auto& [at, block] : world.memory) taken += block.second == device ? static_cast<int64_t>(block.first) : 0;
  if (device >= 0 && taken + static_cast<int64_t>(bytes) > world.options.memory_bytes) return Fail(cudaErrorMemoryAllocation);
  // Allocates exactly this size, so that AddressSanitizer detects reads past the end.
  if (::posix_memalign(address, 512, bytes) != 0) return Fail(cudaErrorMemoryAllocation);
  std::memset(*address, kPoison, bytes);
  world.memory[*address] = {bytes, device};
  return cudaSuccess;
}

// Whether nothing is left to do on a device; -1: on any that works.
bool Idle(int device) {
  const auto& streams = TheWorld().streams;
  return std::all_of(streams.begin(), streams.end(), [&](const auto& stream) {
    return stream->queue.empty() || (device < 0 ? Lost(stream->device) : stream->device != device);
  });
}

// Null for memory that was not allocated here.
const Block* BlockOf(const void* address) {
  const auto lock = Locked();
  const auto& memory = TheWorld().memory;
  auto block = memory.upper_bound(const_cast<void*>(address));
  const bool known = block != memory.begin() && static_cast<const char*>((--block)->first) + block->second.first > address;
  return known ? &block->second : nullptr;
}

// The device that owns this memory; -1 for the host.
int DeviceOf(const void* address) {
  const Block* const block = BlockOf(address);
  return block == nullptr ? -1 : block->second;
}

cudaError_t FreeMemory(void* address) {
  if (address == nullptr) return cudaSuccess;
  if (Capturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  // Once a device has failed, what it has not done is never done; a call waits for the device that owns the memory, for all if none does.
  auto lock = Locked();
  const int owner = DeviceOf(address);
  if (Lost(owner)) return Fail(cudaErrorLaunchFailure);
  lock.unlock();
  AdvanceWaiting([owner] { return DeviceLost() && Idle(owner); });
  lock.lock();
  NeedContext();
  if (TheWorld().memory.erase(address) == 0) return Fail(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}

// With zero bytes the addresses may be null.
void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

cudaError_t EnqueueCopy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const auto lock = Locked();
  const int there = DeviceOf(to), here = DeviceOf(from), device = there < 0 ? here : there;
  if ((there < 0) != (here < 0) && device != DeviceOf(stream)) return Fail(cudaErrorInvalidValue);
  return Enqueue(stream, "copy", [=] { CopyBytes(to, from, bytes); });
}

cudaError_t Synchronize(cudaStream_t given) {
  auto lock = Locked();
  if (StreamOf(given)->capture != 0) return Fail(cudaErrorStreamCaptureUnsupported);
  const WorkPtr last = StreamOf(given)->last;
  if (last == nullptr) return cudaSuccess;
  lock.unlock();
  AdvanceWaiting([&] { return last->done || Lost(last->device); });
  lock.lock();
  if (Lost(last->device)) return Fail(cudaErrorLaunchFailure);
  return last->done ? cudaSuccess : Fail(cudaErrorLaunchTimeout);  // it would wait forever
}

void AwaitPlace(cudaStream_t given) {
  const auto limit = static_cast<size_t>(TheWorld().options.queue_limit);
  const CUstream_st* const stream = StreamOf(given);
  if (limit > 0) AdvanceWaiting([&] { return stream->capture != 0 || stream->queue.size() < limit; });
}

}  // namespace

void Reset(const Options& options) {
  World& world = TheWorld();
  Advance([] { return false; });
  const bool leaks = !world.memory.empty() || !world.streams.empty() || !world.events.empty();
  if (leaks) {
    std::fprintf(stderr, "leaked: %zu blocks of memory, %zu streams, %zu events\n", world.memory.size(), world.streams.size(),
                 world.events.size());
    std::abort();
  }
  world.options = options;
  world.random.seed(options.seed);
  the_device = 0;
  world.calls.clear();
  world.peers.clear();
  world.contexts.clear();
  world.work_done.clear();
  the_last_error = cudaSuccess;
  the_capture = nullptr;
}

const std::vector<Call>& Calls() { return TheWorld().calls; }

std::set<std::pair<int, int>> EnabledPeers() { return TheWorld().peers; }

std::set<int> Contexts() {
  const auto lock = Locked();
  return TheWorld().contexts;
}

int WorkDone(int device) {
  const auto lock = Locked();
  return TheWorld().work_done[device];
}

bool DeviceLost() {
  const auto lock = Locked();
  return Lost(TheWorld().options.lost_device);
}

cudaError_t EnqueueTogether(const std::string& what, std::span<cudaStream_t const> streams, std::function<bool()> run,
                            std::function<bool()> ended) {
  const auto lock = Locked();
  std::vector<WorkPtr> before;
  for (cudaStream_t stream : streams.subspan(1)) {
    const WorkPtr& last = stream->capture != 0 ? stream->captured : stream->last;
    if (last != nullptr) before.push_back(last);
  }
  cudaStream_t first = streams.front();
  if (const cudaError_t error = EnqueuePolled(first, what, std::move(run), before, ended); error != cudaSuccess) return error;
  const WorkPtr work = first->capture != 0 ? first->captured : first->last;
  for (cudaStream_t stream : streams.subspan(1)) {
    if (const cudaError_t error = EnqueuePolled(stream, what, nullptr, {work}, ended); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t AllocateForCommunicator() {
  const auto lock = Locked();
  if (Capturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  size_t free = 0, total = 0;
  if (const cudaError_t error = cudaMemGetInfo(&free, &total); error != cudaSuccess) return error;
  return static_cast<int64_t>(free) < TheWorld().options.communicator_bytes ? Fail(cudaErrorMemoryAllocation) : cudaSuccess;
}

void KeepByGraph(std::shared_ptr<void> object) {
  const auto lock = Locked();
  if (Capturing()) the_capture->graph.kept.push_back(std::move(object));
}

void AdvanceStreams() {
  Advance([] { return false; });
}

}  // namespace gradloom::emulated

namespace gradloom::cuda {

// Throws the error that a launch on a GPU leaves for cudaGetLastError, which also returns an error that an earlier call of the thread left
// there.
void EmulatedLaunch(cudaStream_t stream, std::function<void()> work) {
  if (emulated::DeviceOf(stream) != emulated::the_device) CheckCuda(cudaErrorInvalidResourceHandle, "launch");
  const std::chrono::microseconds takes(emulated::TheWorld().options.kernel_us);
  const auto run = [work = std::move(work), takes] {
    work();
    if (takes.count() > 0) std::this_thread::sleep_for(takes);
  };
  emulated::AwaitPlace(stream);
  CheckCuda(emulated::Enqueue(stream, "launch", run), "launch");
  CheckCuda(cudaGetLastError(), "launch");
}

}  // namespace gradloom::cuda

using namespace gradloom::emulated;  // NOLINT: the functions below are CUDA's, outside every namespace

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(the_last_error, cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheWorld().options.devices;
  return *count > 0 ? cudaSuccess : Fail(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= TheWorld().options.devices) return Fail(cudaErrorInvalidDevice);
  const auto lock = Locked();
  the_device = device;
  NeedContext();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = the_device, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Emulated GPU %d", device);
  properties->totalGlobalMem = static_cast<size_t>(TheWorld().options.memory_bytes);
  properties->major = ComputeMajor(device);
  properties->multiProcessorCount = 132;
  properties->pciBusID = device;
  properties->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? ComputeMajor(device) : attribute == cudaDevAttrMultiProcessorCount ? 132 : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const auto lock = Locked();
  int64_t taken = 0;
  for (const auto& [at, block] : TheWorld().memory) taken += block.second == the_device ? static_cast<int64_t>(block.first) : 0;
  *total = static_cast<size_t>(TheWorld().options.memory_bytes);
  *free = *total - static_cast<size_t>(taken);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  return *can = TheWorld().options.peers && device != other ? 1 : 0, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  const auto lock = Locked();
  if (Capturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  if (!TheWorld().options.peers || other == the_device) return Fail(cudaErrorPeerAccessUnsupported);
  return TheWorld().peers.emplace(the_device, other).second ? cudaSuccess : Fail(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceSynchronize() {
  if (const auto lock = Locked(); AnyCapture()) return Fail(cudaErrorStreamCaptureUnsupported);
  AdvanceWaiting([] { return false; });
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const auto lock = Locked();
  NeedContext();
  *attributes = {};
  const Block* const block = BlockOf(pointer);
  attributes->type = block == nullptr ? cudaMemoryTypeUnregistered : block->second < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = block == nullptr ? -1 : block->second;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** address, size_t bytes) { return AllocateMemory(address, bytes, the_device); }
cudaError_t cudaFree(void* address) { return FreeMemory(address); }
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  if (TheWorld().options.pinning_fails) return Fail(cudaErrorMemoryAllocation);
  return AllocateMemory(address, bytes, -1);
}
cudaError_t cudaFreeHost(void* address) { return FreeMemory(address); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return EnqueueCopy(to, from, bytes, stream);
}
// A copy in the default stream, for which the streams of steps do not wait. From pageable memory the call returns once the source has been
// read, within a device at once ("API synchronization behavior" in CUDA's documentation).
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (Capturing()) return Fail(cudaErrorStreamCaptureUnsupported);
  const bool to_device = DeviceOf(to) >= 0, from_device = DeviceOf(from) >= 0;
  if (to_device && from_device) return Enqueue(nullptr, "copy", [=] { CopyBytes(to, from, bytes); });
  if (const cudaError_t error = Synchronize(nullptr); error != cudaSuccess) return error;
  if (to_device && BlockOf(from) == nullptr) {
    const auto* const source = static_cast<const std::byte*>(from);
    return Enqueue(nullptr, "copy", [to, staged = std::vector(source, source + bytes)] { CopyBytes(to, staged.data(), staged.size()); });
  }
  CopyBytes(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Enqueue(stream, "fill", [=] {
    if (bytes > 0) std::memset(to, value, bytes);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const auto lock = Locked();
  NeedContext();
  auto& streams = TheWorld().streams;
  auto made = std::make_unique<CUstream_st>();
  made->number = streams.empty() ? 1 : streams.back()->number + 1;
  made->device = the_device;
  *stream = streams.emplace_back(std::move(made)).get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!DeviceLost()) Synchronize(stream);
  const auto lock = Locked();
  NeedContext();
  auto& streams = TheWorld().streams;
  std::erase_if(streams, [&](const auto& mine) { return mine.get() == stream; });
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Synchronize(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto lock = Locked();
  if (StreamOf(stream)->capture != 0) return Fail(cudaErrorStreamCaptureUnsupported);
  const WorkPtr last = StreamOf(stream)->last;
  // A GPU proceeds by itself while the host does something else.
  if (last != nullptr) Advance([&, pieces = 1 + TheWorld().random() % 64]() mutable { return last->done || pieces-- == 0; });
  if (Lost(DeviceOf(stream))) return Fail(cudaErrorLaunchFailure);
  return last == nullptr || last->done ? cudaSuccess : Fail(cudaErrorNotReady);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto lock = Locked();
  NeedContext();
  *event = new CUevent_st;
  (*event)->device = the_device;
  TheWorld().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = Locked();
  NeedContext();
  TheWorld().events.erase(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given) {
  return cudaEventRecordWithFlags(event, given, cudaEventRecordDefault);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
  const auto lock = Locked();
  CUstream_st* const stream = StreamOf(given);
  const bool external = flags == cudaEventRecordExternal;
  if (external && stream->capture == 0) return Fail(cudaErrorIllegalState);
  if (event->device != DeviceOf(given)) return Fail(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = Enqueue(given, "record", [time = event->time] { *time = std::chrono::steady_clock::now(); });
      error != cudaSuccess)
    return error;
  if (external) return cudaSuccess;  // work that waits for the event does so outside the graph
  event->recorded = stream->capture != 0 ? stream->captured : stream->last;
  event->capture = stream->capture;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned) {
  const auto lock = Locked();
  CUstream_st* const stream = StreamOf(given);
  if (event->recorded == nullptr) return cudaSuccess;  // as in CUDA, there is nothing to wait for
  if (event->capture != 0) {
    // The stream joins the event's capture.
    if (!Capturing() || the_capture->number != event->capture) return Fail(cudaErrorStreamCaptureIsolation);
    stream->capture = event->capture;
  } else if (stream->capture != 0) {
    return Fail(cudaErrorStreamCaptureIsolation);
  }
  return Enqueue(given, "wait", nullptr, {event->recorded});
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  const auto lock = Locked();
  if (begin->capture != 0 || end->capture != 0) return Fail(cudaErrorCapturedEvent);
  *ms = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const auto lock = Locked();
  if (Capturing() || stream == nullptr) return Fail(cudaErrorStreamCaptureUnsupported);
  the_capture = std::make_unique<Capture>();
  the_capture->number = ++TheWorld().captures;
  the_capture->origin = stream;
  stream->capture = the_capture->number;
  stream->captured = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Locked();
  *graph = nullptr;
  if (!Capturing() || the_capture->origin != stream) return Fail(cudaErrorStreamCaptureUnmatched);
  // Every stream that took part must have been joined: its last item must precede the last item of the origin stream.
  std::set<const Work*> before;
  std::vector<const Work*> open;
  if (stream->captured != nullptr) open.push_back(stream->captured.get());
  while (!open.empty()) {
    const Work* const work = open.back();
    open.pop_back();
    if (!before.insert(work).second) continue;
    for (const WorkPtr& earlier : work->after) open.push_back(earlier.get());
  }
  bool joined = true;
  for (const auto& [number, work] : the_capture->graph.work) joined = joined && before.contains(work.get());
  for (const auto& s : TheWorld().streams) {
    if (s->capture == the_capture->number) s->capture = 0, s->captured = nullptr;
  }
  if (joined) *graph = new CUgraph_st(std::move(the_capture->graph));
  the_capture = nullptr;
  return joined ? cudaSuccess : Fail(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Locked();
  *status = StreamOf(stream)->capture != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const auto lock = Locked();
  NeedContext();
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const auto lock = Locked();
  return EnqueuePolled(stream, "graph", [run = std::make_shared<GraphRun>(exec->graph)] { return run->Continue(); }, {});
}
}  // extern "C"

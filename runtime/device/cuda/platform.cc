// All CUDA devices of a process, and the entry point of the library.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "kernels/cuda/check.h"
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/nccl_group.h"
#include "runtime/device/cuda/sensors.h"
#include "runtime/device/cuda/use_device.h"
#include "runtime/device/cuda/versions.h"
#include "runtime/device/plugin.h"

namespace gradloom::cuda {
namespace {

std::string UuidOf(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += byte;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// CUDA counts 1000 major + 10 minor.
std::string VersionText(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

class CudaDevicePlatform : public DevicePlatform {
 public:
  CudaDevicePlatform() : versions_(ReadVersions()) {}

  const PlatformVersions& versions() const override { return versions_; }

  std::string problem() const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver && versions_.driver == 0) return "there is no NVIDIA driver";
    if (error == cudaErrorInsufficientDriver)
      return "the NVIDIA driver supports CUDA up to " + VersionText(versions_.driver) + ", but this library needs " +
             VersionText(versions_.runtime);
    if (error != cudaSuccess) return cudaGetErrorString(error);
    return count == 0 ? "there is no NVIDIA GPU" : "";
  }

  std::vector<DeviceProperties> devices() override {
    std::vector<DeviceProperties> found;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    cudaGetLastError();
    for (int ordinal = 0; ordinal < count; ++ordinal) found.push_back(PropertiesOf(ordinal, count));
    return found;
  }

  int OrdinalOf(const void* memory) override {
    const cudaPointerAttributes attributes = AttributesOf(memory);
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged ? attributes.device : -1;
  }

  // Of memory that is pinned in part, the driver refuses to copy more than that part.
  bool Pinned(const void* memory, int64_t bytes) override {
    const auto* const first = static_cast<const std::byte*>(memory);
    return AttributesOf(first).type == cudaMemoryTypeHost &&
           AttributesOf(first + std::max<int64_t>(bytes - 1, 0)).type == cudaMemoryTypeHost;
  }

  std::unique_ptr<Device> Open(int ordinal) override {
    std::unique_ptr<Device> device = OpenDevice(ordinal);
    opened_ = ordinal;
    return device;
  }

  void ConnectPeers(std::span<Device* const> members) override {
    for (const Device* reader : members) {
      for (const Device* other : members) {
        if (reader->ordinal() != other->ordinal()) LetRead(reader->ordinal(), other->ordinal());
      }
    }
  }

  void ShareRefusals(std::span<Device* const> members) override {
    if (members.size() > 1) cuda::ShareRefusals(members, LetReadAll(members));
  }

  std::unique_ptr<DeviceGroup> NewGroup(std::span<Device* const> members) override {
    bool apart = true;
    for (size_t a = 0; a < members.size(); ++a) {
      for (size_t b = 0; b < a; ++b) apart = apart && members[a]->ordinal() != members[b]->ordinal();
    }
    const bool readable = LetReadAll(members);
    // NCCL requires a separate GPU for each member, and is faster if each has one.
    if (apart && members.size() > 1) return NewNcclGroup(members);
    if (readable) return NewLocalGroup(members);
    throw Error(ErrorCode::kDevice, "devices that share a GPU communicate with others whose memory they cannot read", "",
                "name each GPU once in --devices, or GPUs with peer access to each other");
  }

  std::unique_ptr<DeviceGroup> JoinGroup(std::span<Device* const> members, const DistributedGroup& distributed) override {
    return JoinNcclGroup(members, distributed);
  }
  std::string NewGroupId() override { return NewNcclId(); }

  void RestoreCurrentDevice() noexcept override { RestoreDevice(); }

 private:
  cudaPointerAttributes AttributesOf(const void* memory) const {
    // The call makes a context on the thread's device, which takes memory; a thread that has chosen none is on device 0.
    if (const int opened = opened_.load(); opened >= 0) UseDevice(opened);
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
    cudaGetLastError();
    return error == cudaSuccess ? attributes : cudaPointerAttributes{};  // all zero: cudaMemoryTypeUnregistered
  }

  // Enables peer access among all of them. Returns whether each can read the memory of all others.
  static bool LetReadAll(std::span<Device* const> members) {
    bool all = true;
    for (const Device* reader : members) {
      for (const Device* other : members) {
        if (reader->ordinal() != other->ordinal()) all = all && LetRead(reader->ordinal(), other->ordinal());
      }
    }
    return all;
  }

  static bool LetRead(int reader, int other) {
    int can = 0;
    GRADLOOM_CUDA(cudaDeviceCanAccessPeer(&can, reader, other));
    if (can == 0) return false;
    GRADLOOM_CUDA(UseDevice(reader));
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError();
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
  }

  static DeviceProperties PropertiesOf(int ordinal, int count) {
    cudaDeviceProp device{};
    GRADLOOM_CUDA(cudaGetDeviceProperties(&device, ordinal));
    DeviceProperties p;
    p.ordinal = ordinal;
    p.name = device.name;
    char bus[32] = "";
    std::snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", static_cast<unsigned>(device.pciDomainID), static_cast<unsigned>(device.pciBusID),
                  static_cast<unsigned>(device.pciDeviceID));
    p.pci_bus = bus;
    p.uuid = UuidOf(device.uuid);
    p.compute_major = device.major;
    p.compute_minor = device.minor;
    p.multiprocessors = device.multiProcessorCount;
    p.memory_total_bytes = static_cast<int64_t>(device.totalGlobalMem);
    p.l2_bytes = device.l2CacheSize;
    p.shared_bytes_per_block = static_cast<int64_t>(device.sharedMemPerBlockOptin);
    p.memory_bus_bits = device.memoryBusWidth;
    // The runtime would create a context on each GPU to report its free memory, which takes memory for every process of a job.
    p.memory_free_bytes = -1;
    ReadSensors(p);
    size_t free = 0, total = 0;
    if (p.memory_free_bytes < 0 && UseDevice(ordinal) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
      p.memory_free_bytes = static_cast<int64_t>(free);
    for (int other = 0; other < count; ++other) {
      int can = 0;
      if (other != ordinal && cudaDeviceCanAccessPeer(&can, ordinal, other) == cudaSuccess && can != 0) p.peers.push_back(other);
    }
    cudaGetLastError();
    return p;
  }

  PlatformVersions versions_;
  std::atomic<int> opened_ = -1;  // a device that has a context
};

}  // namespace
}  // namespace gradloom::cuda

extern "C" __attribute__((visibility("default"))) gradloom::DevicePlatform* gradloom_cuda_platform(int version) {
  if (version != gradloom::kPluginVersion) return nullptr;
  static gradloom::cuda::CudaDevicePlatform platform;
  return &platform;
}

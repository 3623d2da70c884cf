#include "runtime/device/cuda/use_device.h"

#include <cuda.h>

#include <utility>

namespace gradloom::cuda {
namespace {

constexpr int kNone = -1;

thread_local int remembered = kNone;

// Only the driver's library can say this without making a context.
bool HasContext(int ordinal) {
  using GetState = CUresult (*)(CUdevice, unsigned*, int*);
  static const auto get_state = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<GetState>(found) : nullptr;
  }();
  unsigned flags = 0;
  int active = 0;
  // The runtime's ordinals are the driver's.
  return get_state != nullptr && get_state(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

cudaError_t UseDevice(int ordinal) noexcept {
  if (remembered == kNone && cudaGetDevice(&remembered) != cudaSuccess) remembered = kNone;
  return cudaSetDevice(ordinal);
}

void RestoreDevice() noexcept {
  const int before = std::exchange(remembered, kNone);
  int now = kNone;
  if (before == kNone || (cudaGetDevice(&now) == cudaSuccess && now == before)) return;
  if (HasContext(before)) cudaSetDevice(before);
}

}  // namespace gradloom::cuda

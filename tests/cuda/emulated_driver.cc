// The driver's functions that Gradloom asks the runtime for.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/cuda/emulated_runtime.h"

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = gradloom::emulated::Contexts().contains(device) ? 1 : 0;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(name, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(&cuDevicePrimaryCtxGetState) : nullptr;
  if (result != nullptr) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"

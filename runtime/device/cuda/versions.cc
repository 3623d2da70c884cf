#include "runtime/device/cuda/versions.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvrtc.h>

namespace gradloom::cuda {

PlatformVersions ReadVersions() {
  PlatformVersions v;
  cudaDriverGetVersion(&v.driver);
  cudaRuntimeGetVersion(&v.runtime);
  v.cublas = static_cast<int>(cublasLtGetVersion());
  v.cudnn = static_cast<int>(cudnnGetVersion());
  ncclGetVersion(&v.nccl);
  int major = 0, minor = 0;
  if (nvrtcVersion(&major, &minor) == NVRTC_SUCCESS) v.nvrtc = major * 1000 + minor * 10;
  cudaGetLastError();
  return v;
}

}  // namespace gradloom::cuda

#include "kernels/cuda/dnn_handle.h"

#include <cudnn.h>

#include <string>

#include "kernels/cuda/check.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {

cudnnContext* NewDnn() {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = cudnnCreate(&handle);
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) ThrowMemoryUsedUp("cudnnCreate", cudnnGetErrorString(status));
  if (status != CUDNN_STATUS_SUCCESS) throw Error(ErrorCode::kDevice, "cudnnCreate failed: " + std::string(cudnnGetErrorString(status)));
  return handle;
}

void DeleteDnn(cudnnContext* handle) noexcept { cudnnDestroy(handle); }

}  // namespace gradloom::cuda

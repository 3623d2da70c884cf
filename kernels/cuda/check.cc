#include "kernels/cuda/check.h"

namespace gradloom::cuda {

void ThrowCuda(cudaError_t error, const char* call) {
  cudaGetLastError();  // clears the error: whoever continues after it would find it after the next launch
  const std::string said = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  const std::string name = std::string(call).substr(0, std::string(call).find('('));
  if (error == cudaErrorMemoryAllocation) throw Error(ErrorCode::kResource, "the GPU's memory is used up (" + name + ")", said);
  throw Error(ErrorCode::kDevice, name + " failed: " + said);
}

}  // namespace gradloom::cuda

#include "kernels/cuda/check.h"

namespace gradloom::cuda {
namespace {

// What to do about an error. A kernel's error is reported by a call that waits for the device, which cannot say which kernel that was.
const char* HelpFor(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure: return "the same run with --check-numerics waits for each instruction, and names the one that fails";
    case cudaErrorNoKernelImageForDevice:
      return "the CUDA library has no code for this kind of GPU: build it with  --repo_env=CUDA_ARCHS=NN  for sm_NN   "
             "see: gradloom devices";
    case cudaErrorECCUncorrectable: return "the log of the driver says more: dmesg | grep Xid";
    default: return "";
  }
}

}  // namespace

void ThrowCuda(cudaError_t error, const char* call) {
  cudaGetLastError();  // clears the error: whoever continues after it would find it after the next launch
  const std::string said = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  const std::string name = std::string(call).substr(0, std::string(call).find('('));
  if (error == cudaErrorMemoryAllocation) ThrowMemoryUsedUp(name, said);
  throw Error(ErrorCode::kDevice, name + " failed: " + said, "", HelpFor(error));
}

void ThrowMemoryUsedUp(const std::string& call, const std::string& said) {
  throw Error(ErrorCode::kResource, "the GPU's memory is used up (" + call + ")", said,
              "use a smaller --batch, --memory-limit to recompute activations, or --precision bf16");
}

}  // namespace gradloom::cuda

#include "kernels/cuda/libraries.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <map>

#include "kernels/cuda/check.h"
#include "kernels/cuda/dnn_handle.h"
#include "kernels/cuda/runtime_code.h"

namespace gradloom::cuda {

struct Libraries::Opened {
  int ordinal = 0;
  cublasLtHandle_t blas = nullptr;
  cudnnContext* dnn = nullptr;
  std::map<std::string, std::shared_ptr<RuntimeFunction>> functions;  // by source
};

Libraries::Libraries(int ordinal) : opened_(std::make_unique<Opened>()) {
  opened_->ordinal = ordinal;
  int major = 0, minor = 0;
  GRADLOOM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  GRADLOOM_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  architecture_ = "sm_" + std::to_string(major * 10 + minor);
}

Libraries::~Libraries() {
  cudaSetDevice(opened_->ordinal);
  if (opened_->blas != nullptr) cublasLtDestroy(opened_->blas);
  if (opened_->dnn != nullptr) DeleteDnn(opened_->dnn);
}

cublasLtContext* Libraries::blas() {
  if (opened_->blas != nullptr) return opened_->blas;
  GRADLOOM_CUDA(cudaSetDevice(opened_->ordinal));
  const cublasStatus_t status = cublasLtCreate(&opened_->blas);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorCode::kDevice, "cublasLtCreate failed: " + std::string(cublasLtGetStatusString(status)));
  return opened_->blas;
}

cudnnContext* Libraries::dnn() {
  GRADLOOM_CUDA(cudaSetDevice(opened_->ordinal));
  if (opened_->dnn == nullptr) opened_->dnn = NewDnn();
  return opened_->dnn;
}

std::shared_ptr<RuntimeFunction> Libraries::Function(const std::string& source, const std::string& name) {
  std::shared_ptr<RuntimeFunction>& function = opened_->functions[source];
  if (function == nullptr) function = LoadFunction(source, name, architecture_, opened_->ordinal);
  return function;
}

}  // namespace gradloom::cuda

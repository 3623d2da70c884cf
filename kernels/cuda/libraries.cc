#include "kernels/cuda/libraries.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/dnn_handle.h"
#include "kernels/cuda/runtime_code.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom::cuda {

struct Libraries::Opened {
  int ordinal = 0;
  cublasLtHandle_t blas = nullptr;
  cudnnContext* dnn = nullptr;
  std::map<std::string, std::shared_ptr<RuntimeFunction>> functions;  // by source
  std::map<std::string, std::string> codes;                           // by source; compiled ahead, and not a function yet
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
  if (status == CUBLAS_STATUS_ALLOC_FAILED) ThrowMemoryUsedUp("cublasLtCreate", cublasLtGetStatusString(status));
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorCode::kDevice, "cublasLtCreate failed: " + std::string(cublasLtGetStatusString(status)));
  return opened_->blas;
}

cudnnContext* Libraries::dnn() {
  GRADLOOM_CUDA(cudaSetDevice(opened_->ordinal));
  if (opened_->dnn == nullptr) opened_->dnn = NewDnn();
  return opened_->dnn;
}

std::shared_ptr<RuntimeFunction> Libraries::Function(const std::string& source) {
  std::shared_ptr<RuntimeFunction>& function = opened_->functions[source];
  if (function != nullptr) return function;
  const auto ahead = opened_->codes.extract(source);
  function = LoadFunction(source, architecture_, opened_->ordinal, ahead.empty() ? "" : ahead.mapped());
  return function;
}

void Libraries::CompileAhead(const std::set<std::string>& sources) {
  std::vector<const std::string*> missing;
  for (const std::string& source : sources) {
    const auto loaded = opened_->functions.find(source);
    if (loaded != opened_->functions.end() && loaded->second != nullptr) continue;
    if (!opened_->codes.contains(source) && !IsCached(source, architecture_)) missing.push_back(&source);
  }
  std::vector<std::string> codes(missing.size());
  RunOnThreads(static_cast<int64_t>(missing.size()), NumCores(), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      codes[at] = CompileAndCache(*missing[at], architecture_);
    } catch (const Error&) {
      // Function() reports it.
    }
  });
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!codes[i].empty()) opened_->codes[*missing[i]] = std::move(codes[i]);
  }
}

}  // namespace gradloom::cuda

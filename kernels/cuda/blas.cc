// Products by cuBLASLt. It thinks in columns: a row-major matrix is the transpose of what it sees, so d = a b is asked as d' = b' a'.
#include "kernels/cuda/rows/blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/stand_in.h"

namespace gradloom::cuda {
namespace {

// A plan's scratch memory is aligned to less.
constexpr uintptr_t kWorkspaceAlignment = 256;

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kDevice, std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kBfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

class MatrixLayout {
 public:
  // As cuBLASLt sees it: `rows` neighbours in memory, `columns` of them.
  MatrixLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch, int64_t step) {
    Check(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<int32_t>(batch);
    Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "a batch count");
    Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), "a batch stride");
  }
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(layout_); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class BlasKernel : public Kernel {
 public:
  BlasKernel(const KernelCall& call, Libraries& libraries)
      : product_(*BlasProductOf(call)),
        type_(TypeOf(call.inputs[0].dtype)),
        blas_(libraries.blas()),
        // The left operand of the transposed product is b.
        b_(type_, product_.transpose_b ? product_.k : product_.n, product_.transpose_b ? product_.n : product_.k, product_.batch,
           product_.b_step),
        a_(type_, product_.transpose_a ? product_.m : product_.k, product_.transpose_a ? product_.k : product_.m, product_.batch,
           product_.a_step),
        d_(type_, product_.n, product_.m, product_.batch, product_.m * product_.n),
        workspace_bytes_(static_cast<size_t>(BlasScratchBytes(product_)) - kWorkspaceAlignment) {
    const bool wide = type_ == CUDA_R_64F, tf32 = type_ == CUDA_R_32F && call.attributes.Int("allow_tf32", 0) != 0;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    Check(cublasLtMatmulDescCreate(&desc_, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, product_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, product_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (product_.addend == BlasProduct::Addend::kRow) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_);
      // Heuristics want an address; each run sets its own.
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{kAlignmentBytes}));
    }
    ChooseAlgorithm();
  }
  ~BlasKernel() override { cublasLtMatmulDescDestroy(desc_); }
  bool has_algorithm() const { return has_algorithm_; }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    const bool adds = product_.addend == BlasProduct::Addend::kMatrix;
    if (product_.addend == BlasProduct::Addend::kRow) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, inputs[2]);
    const float alpha = static_cast<float>(product_.alpha), beta = static_cast<float>(adds ? product_.beta : 0);
    const double wide_alpha = product_.alpha, wide_beta = adds ? product_.beta : 0;
    const bool wide = type_ == CUDA_R_64F;
    void* const workspace =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) & ~(kWorkspaceAlignment - 1));
    Check(cublasLtMatmul(blas_, desc_, wide ? static_cast<const void*>(&wide_alpha) : &alpha, inputs[1], b_.get(), inputs[0], a_.get(),
                         wide ? static_cast<const void*>(&wide_beta) : &beta, adds ? inputs[2] : outputs[0], d_.get(), outputs[0], d_.get(),
                         &algorithm_, workspace, workspace_bytes_, static_cast<cudaStream_t>(stream)),
          "cublasLtMatmul");
  }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  // The library's first choice within the plan's scratch memory.
  void ChooseAlgorithm() {
    cublasLtMatmulPreference_t preference = nullptr;
    Check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto alignment = static_cast<uint32_t>(kAlignmentBytes);
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_,
                                                                 sizeof workspace_bytes_);
    // Parts of a sum over k are joined in the type of the sum, not in the 16 bits of the result.
    const uint32_t joined = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &joined, sizeof joined);
    for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) status = cublasLtMatmulPreferenceSetAttribute(preference, operand, &alignment, sizeof alignment);
    }
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulAlgoGetHeuristic(blas_, desc_, b_.get(), a_.get(), d_.get(), d_.get(), preference, 1, &found, &count);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    // Not supported is what it says of a product for which it has nothing.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) return;
    Check(status, "cublasLtMatmulAlgoGetHeuristic");
    algorithm_ = found.algo;
    has_algorithm_ = true;
  }

  BlasProduct product_;
  cudaDataType_t type_;
  cublasLtHandle_t blas_;
  MatrixLayout b_, a_, d_;
  size_t workspace_bytes_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_algorithm_ = false;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  auto kernel = std::make_unique<BlasKernel>(call, *site.libraries);
  if (kernel->has_algorithm()) return kernel;
  return StandInFor("cuBLASLt", ProductKernels(), call, site, "it knows no algorithm for the product");
}

constexpr CudaKernel kKernels[] = {{"cublas.MatMul", Make}, {"cublas.Gemm", Make}};

}  // namespace

std::span<const CudaKernel> BlasKernels() { return kKernels; }

}  // namespace gradloom::cuda

// cuBLASLt is column-major, so a row-major matrix is the transpose of what it sees: d = a b is computed as d^T = b^T a^T.
#include "kernels/cuda/lt_product.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <sstream>

#include "kernels/cuda/algorithms.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {
namespace {

// A plan's scratch memory has a smaller alignment.
constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr int kMaxAlgorithms = 8;

using Addend = BlasProduct::Addend;
using Epilogue = BlasProduct::Epilogue;

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kDevice, std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

// The library's epilogue for a product. Its left operand is `b`, whose columns are those of d.
cublasLtEpilogue_t EpilogueOf(const BlasProduct& product) {
  const bool bias = product.addend == Addend::kRow;
  switch (product.epilogue) {
    case Epilogue::kRelu: return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::kGelu: return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kSumsOfA: return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::kSumsOfB: return CUBLASLT_EPILOGUE_BGRADA;
    default: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kBfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

int64_t Or(int64_t stride, int64_t absent) { return stride == 0 ? absent : stride; }

// The library documents that the description of an algorithm may be stored and reused with the same version of the library.
std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (uint64_t word : algorithm.data) text += (text.empty() ? "" : " ") + std::to_string(word);
  return text;
}

}  // namespace

LtProduct::MatrixLayout::MatrixLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading, int64_t batch, int64_t step) {
  Check(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), leading),
        "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<int32_t>(batch);
  Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "a batch count");
  Check(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), "a batch stride");
}

LtProduct::LtProduct(const BlasProduct& p, Libraries& libraries)
    : product_(p),
      blas_(libraries.blas()),
      // The left operand of the transposed product is b.
      b_(TypeOf(p.dtype), p.b_columns(), p.b_rows(), Or(p.b_row, p.b_columns()), p.batch, p.b_step),
      a_(TypeOf(p.dtype), p.a_columns(), p.a_rows(), Or(p.a_row, p.a_columns()), p.batch, p.a_step),
      d_(TypeOf(p.result), p.n, p.m, Or(p.d_row, p.n), p.batch, Or(p.d_step, p.m * p.n)),
      workspace_bytes_(static_cast<size_t>(BlasScratchBytes(p)) - kWorkspaceAlignment) {
  const bool wide = p.dtype == DType::kFloat64, tf32 = p.dtype == DType::kFloat32 && p.allow_tf32;
  const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  Check(cublasLtMatmulDescCreate(&desc_, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
  Set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.addend == Addend::kRow || p.epilogue != Epilogue::kNone) {
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p));
    // The heuristics need addresses; each run sets its own.
    SetAddresses(reinterpret_cast<const void*>(uintptr_t{kAlignmentBytes}), reinterpret_cast<const void*>(uintptr_t{kAlignmentBytes}));
  }
  if (has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(p.dtype));
  if (has_matrix()) Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Or(p.d_row, p.n));
  ChooseAlgorithm(libraries);
}

LtProduct::~LtProduct() { cublasLtMatmulDescDestroy(desc_); }

void LtProduct::Run(const void* const* inputs, void* const* outputs, void* scratch, CUstream_st* stream) {
  Check(Enqueue(inputs, outputs, scratch, stream), "cublasLtMatmul");
}

cublasStatus_t LtProduct::Enqueue(const void* const* inputs, void* const* outputs, void* scratch, CUstream_st* stream) {
  const bool adds = product_.addend == Addend::kMatrix;
  if (has_vector() || has_matrix()) {
    SetAddresses(product_.sums ? outputs[1] : has_vector() ? inputs[2] : nullptr, has_matrix() ? outputs[1] : nullptr);
  }
  const float alpha = static_cast<float>(product_.alpha), beta = static_cast<float>(adds ? product_.beta : 0);
  const double wide_alpha = product_.alpha, wide_beta = adds ? product_.beta : 0;
  const bool wide = product_.dtype == DType::kFloat64;
  void* const workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) & ~(kWorkspaceAlignment - 1));
  return cublasLtMatmul(blas_, desc_, wide ? static_cast<const void*>(&wide_alpha) : &alpha, inputs[1], b_.get(), inputs[0], a_.get(),
                        wide ? static_cast<const void*>(&wide_beta) : &beta, adds ? inputs[2] : outputs[0], d_.get(), outputs[0], d_.get(),
                        &algorithm_, workspace, workspace_bytes_, stream);
}

template <typename T>
void LtProduct::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

// Whether there is a bias, or sums are written.
bool LtProduct::has_vector() const { return product_.sums || product_.addend == Addend::kRow; }

// Whether GELU's operand is written.
bool LtProduct::has_matrix() const { return product_.epilogue == Epilogue::kGelu; }

void LtProduct::SetAddresses(const void* vector, const void* matrix) {
  if (has_vector()) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (has_matrix()) Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, matrix);
}

// Chooses an algorithm that fits the scratch memory: the library's first choice, or if algorithms are measured, the fastest of its first
// ones.
void LtProduct::ChooseAlgorithm(Libraries& libraries) {
  Algorithms& algorithms = libraries.algorithms();
  const std::string problem = Problem();
  if (const auto known = algorithms.Known(problem); known && Restore(*known)) return;
  const std::vector<cublasLtMatmulAlgo_t> found = Heuristics(algorithms.measures() ? kMaxAlgorithms : 1);
  if (found.empty()) return;
  algorithm_ = found[0];
  has_algorithm_ = true;
  if (!algorithms.measures()) return;
  if (found.size() > 1) Measure(found, libraries);
  algorithms.Keep(problem, TextOf(algorithm_));
}

// The first `most` algorithms of the heuristics.
std::vector<cublasLtMatmulAlgo_t> LtProduct::Heuristics(int max_count) {
  cublasLtMatmulPreference_t preference = nullptr;
  Check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto alignment = static_cast<uint32_t>(product_.alignment);
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_,
                                                               sizeof workspace_bytes_);
  // Partial sums are added in the type of the sum, not in 16 bits.
  const uint32_t joined = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &joined, sizeof joined);
  for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                       CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasLtMatmulPreferenceSetAttribute(preference, operand, &alignment, sizeof alignment);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(max_count));
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status =
        cublasLtMatmulAlgoGetHeuristic(blas_, desc_, b_.get(), a_.get(), d_.get(), d_.get(), preference, max_count, results.data(), &count);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<cublasLtMatmulAlgo_t> found;
  // Returned for products that the library does not support.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return found;
  Check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i) {
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) found.push_back(results[static_cast<size_t>(i)].algo);
  }
  return found;
}

void LtProduct::Measure(const std::vector<cublasLtMatmulAlgo_t>& found, Libraries& libraries) {
  const BlasProduct& p = product_;
  const auto bytes = [&](DType dtype, int64_t rows, int64_t columns, int64_t row, int64_t step) {
    return ((p.batch - 1) * step + (rows - 1) * Or(row, columns) + columns) * DTypeBytes(dtype);
  };
  const int64_t d = bytes(p.result, p.m, p.n, p.d_row, Or(p.d_step, p.m * p.n));
  const auto memory = TrialMemory::Allocate(
      p.dtype, {bytes(p.dtype, p.a_rows(), p.a_columns(), p.a_row, p.a_step), bytes(p.dtype, p.b_rows(), p.b_columns(), p.b_row, p.b_step),
                // An addend, or the operand of GELU.
                p.addend != Addend::kNone || has_matrix() ? d : 0, d,
                // The sums of rows or columns, or the operand of GELU.
                has_matrix() ? d
                : p.sums     ? std::max(p.m, p.n) * DTypeBytes(p.dtype)
                             : 0,
                static_cast<int64_t>(workspace_bytes_ + kWorkspaceAlignment)});
  if (memory == nullptr) return libraries.Note("there is no memory to measure algorithms of a product in: it has the first");
  const std::vector<void*>& blocks = memory->blocks();
  const void* const inputs[] = {blocks[0], blocks[1], blocks[2]};
  void* const outputs[] = {blocks[3], blocks[4]};
  const int best = FastestOf(static_cast<int>(found.size()), [&](int i, CUstream_st* stream) {
    algorithm_ = found[static_cast<size_t>(i)];
    return Enqueue(inputs, outputs, blocks[5], stream) == CUBLAS_STATUS_SUCCESS;
  });
  algorithm_ = found[static_cast<size_t>(std::max(best, 0))];
}

// All that the choice depends on, besides the environment.
std::string LtProduct::Problem() const {
  const BlasProduct& p = product_;
  std::string text = "cublasLt " + std::string(DTypeName(p.dtype)) + " " + std::string(DTypeName(p.result));
  for (int64_t number : {p.m, p.n, p.k, p.batch, p.a_step, p.b_step, p.d_step, p.a_row, p.b_row, p.d_row, p.alignment,
                         int64_t{p.transpose_a}, int64_t{p.transpose_b}, static_cast<int64_t>(p.addend), static_cast<int64_t>(p.epilogue),
                         int64_t{p.sums}, int64_t{p.allow_tf32}, static_cast<int64_t>(workspace_bytes_)})
    text += " " + std::to_string(number);
  return text;
}

// Takes a recorded algorithm; returns false if it is not valid for this product and scratch memory.
bool LtProduct::Restore(const std::string& text) {
  std::istringstream words(text);
  for (uint64_t& word : algorithm_.data) {
    if (!(words >> word)) return false;
  }
  cublasLtMatmulHeuristicResult_t checked{};
  has_algorithm_ =
      cublasLtMatmulAlgoCheck(blas_, desc_, b_.get(), a_.get(), d_.get(), d_.get(), &algorithm_, &checked) == CUBLAS_STATUS_SUCCESS &&
      checked.workspaceSize <= workspace_bytes_;
  return has_algorithm_;
}

}  // namespace gradloom::cuda

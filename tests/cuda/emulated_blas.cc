// cuBLASLt without a GPU, for tests: products in double over column-major matrices, as its documentation states them. The workspace is
// overwritten, and has to lie as CUDA's own allocations do.
#include <cublasLt.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/emulated_launch.h"
#include "runtime/base/half.h"
#include "tests/cuda/emulated_runtime.h"

namespace {

using Bytes = std::map<int, std::string>;

bool& HasAlgorithms() {
  static bool has = true;
  return has;
}

template <typename T>
T Get(const Bytes& attributes, int attribute, T absent) {
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return absent;
  std::memcpy(&absent, found->second.data(), sizeof absent);
  return absent;
}

struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  Bytes attributes;
};
struct Desc {
  cudaDataType_t scale;
  Bytes attributes;
};

Layout* Of(cublasLtMatrixLayout_t layout) { return reinterpret_cast<Layout*>(layout); }
Desc* Of(cublasLtMatmulDesc_t desc) { return reinterpret_cast<Desc*>(desc); }

double Load(cudaDataType_t type, const void* memory, int64_t i) {
  switch (type) {
    case CUDA_R_64F: return static_cast<const double*>(memory)[i];
    case CUDA_R_16F: return static_cast<double>(static_cast<float>(static_cast<const gradloom::Half*>(memory)[i]));
    case CUDA_R_16BF: return static_cast<double>(static_cast<float>(static_cast<const gradloom::Bfloat16*>(memory)[i]));
    default: return static_cast<double>(static_cast<const float*>(memory)[i]);
  }
}
void Store(cudaDataType_t type, void* memory, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(memory)[i] = value; return;
    case CUDA_R_16F: static_cast<gradloom::Half*>(memory)[i] = static_cast<float>(value); return;
    case CUDA_R_16BF: static_cast<gradloom::Bfloat16*>(memory)[i] = static_cast<float>(value); return;
    default: static_cast<float*>(memory)[i] = static_cast<float>(value); return;
  }
}

struct Matrix {
  Layout layout;
  const void* data;
  bool transposed = false;
  int64_t rows() const { return static_cast<int64_t>(transposed ? layout.columns : layout.rows); }
  int64_t columns() const { return static_cast<int64_t>(transposed ? layout.rows : layout.columns); }
  int64_t Place(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return batch * Get<int64_t>(layout.attributes, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0) + column * layout.leading + row;
  }
  double At(int64_t batch, int64_t row, int64_t column) const { return Load(layout.type, data, Place(batch, row, column)); }
};

void Multiply(const Desc& desc, double alpha, const Matrix& a, const Matrix& b, double beta, const Matrix& c, const Matrix& d) {
  const int batches = Get<int32_t>(d.layout.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
  const auto epilogue = Get(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const void* const bias = Get<const void*>(desc.attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<double> made;
    for (int64_t column = 0; column < d.columns(); ++column) {
      for (int64_t row = 0; row < d.rows(); ++row) {
        double sum = 0;
        for (int64_t k = 0; k < a.columns(); ++k) sum += a.At(batch, row, k) * b.At(batch, k, column);
        sum *= alpha;
        if (beta != 0) sum += beta * c.At(batch, row, column);
        if (epilogue == CUBLASLT_EPILOGUE_BIAS) sum += Load(d.layout.type, bias, row);
        made.push_back(sum);
      }
    }
    size_t next = 0;
    for (int64_t column = 0; column < d.columns(); ++column) {
      for (int64_t row = 0; row < d.rows(); ++row)
        Store(d.layout.type, const_cast<void*>(d.data), d.Place(batch, row, column), made[next++]);
    }
  }
}

}  // namespace

void gradloom::emulated::SetBlasHasAlgorithms(bool all) { HasAlgorithms() = all; }

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "of the emulated library"; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete Of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  Of(layout)->attributes[attribute].assign(static_cast<const char*>(value), bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t scale) {
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc{scale, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete Of(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  Of(desc)->attributes[attribute].assign(static_cast<const char*>(value), bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t[], int* count) {
  *count = HasAlgorithms() ? 1 : 0;
  return HasAlgorithms() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t given, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Desc desc = *Of(given);
  const auto transposed = [&](int attribute) { return Get(desc.attributes, attribute, CUBLAS_OP_N) != CUBLAS_OP_N; };
  const Matrix left{*Of(a_layout), a, transposed(CUBLASLT_MATMUL_DESC_TRANSA)},
      right{*Of(b_layout), b, transposed(CUBLASLT_MATMUL_DESC_TRANSB)};
  const Matrix addend{*Of(c_layout), c}, result{*Of(d_layout), d};
  if (left.columns() != right.rows() || left.rows() != result.rows() || right.columns() != result.columns())
    return CUBLAS_STATUS_INVALID_VALUE;
  const double scale = Load(desc.scale, alpha, 0), add = Load(desc.scale, beta, 0);
  gradloom::cuda::EmulatedLaunch(stream, [=] {
    std::memset(workspace, 0xA5, workspace_bytes);
    Multiply(desc, scale, left, right, add, addend, result);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

// cuBLASLt without a GPU, for tests: products in double over column-major matrices, with their epilogues, as specified in its
// documentation. The workspace is overwritten, and must have the alignment of CUDA's own allocations.
#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
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

struct KnownAlgorithms {
  int count = 1, fastest = 1;  // number of algorithms, and the number of the fastest, counted from 1
  int asked = 0;
  std::set<int> ran = {};
};
KnownAlgorithms& TheAlgorithms() {
  static KnownAlgorithms algorithms;
  return algorithms;
}

bool& HasEpilogues() {
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
struct Preference {
  Bytes attributes;
};

Layout* Of(cublasLtMatrixLayout_t layout) { return reinterpret_cast<Layout*>(layout); }
Desc* Of(cublasLtMatmulDesc_t desc) { return reinterpret_cast<Desc*>(desc); }
Preference* Of(cublasLtMatmulPreference_t preference) { return reinterpret_cast<Preference*>(preference); }

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
  int64_t batch_stride = 0;

  Matrix(const Layout& of, const void* at, bool is_transposed = false)
      : layout(of),
        data(at),
        transposed(is_transposed),
        batch_stride(Get<int64_t>(of.attributes, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0)) {}

  int64_t rows() const { return static_cast<int64_t>(transposed ? layout.columns : layout.rows); }
  int64_t columns() const { return static_cast<int64_t>(transposed ? layout.rows : layout.columns); }
  int64_t Place(int64_t batch, int64_t row, int64_t column) const {
    if (transposed) std::swap(row, column);
    return batch * batch_stride + column * layout.leading + row;
  }
  double At(int64_t batch, int64_t row, int64_t column) const { return Load(layout.type, data, Place(batch, row, column)); }

  // The elements of a batch, column by column.
  std::vector<double> Columns(int64_t batch) const {
    std::vector<double> elements;
    elements.reserve(static_cast<size_t>(rows() * columns()));
    for (int64_t column = 0; column < columns(); ++column) {
      for (int64_t row = 0; row < rows(); ++row) elements.push_back(At(batch, row, column));
    }
    return elements;
  }
};

// An algorithm is selected for addresses that are multiples of these numbers of bytes.
constexpr int kAlignments[] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};

// 0 bytes means that the alignment is unknown.
bool IsAligned(const void* address, uint64_t bytes) { return bytes == 0 || reinterpret_cast<uintptr_t>(address) % bytes == 0; }

double TanhOfGelu(double x) { return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)); }
double Gelu(double x) { return x / 2 * (1 + TanhOfGelu(x)); }

// The epilogue applied to each sum, and its bias vector and auxiliary matrix.
struct Epilogue {
  cublasLtEpilogue_t kind;
  cudaDataType_t type;
  void *vector, *matrix;
  int64_t leading;  // leading dimension of the matrix
  std::vector<double> sums;

  Epilogue(const Desc& desc, const Matrix& d)
      : kind(Get(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT)),
        type(d.layout.type),
        vector(Get<void*>(desc.attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr)),
        matrix(Get<void*>(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr)),
        leading(Get<int64_t>(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0)),
        sums(static_cast<size_t>(std::max(d.rows(), d.columns()))) {}

  bool Has(int bits) const { return (kind & bits) == bits; }

  double operator()(int64_t row, int64_t column, double sum) {
    const int64_t place = column * leading + row;
    if (Has(CUBLASLT_EPILOGUE_BIAS)) sum += Load(type, vector, row);
    if (Has(CUBLASLT_EPILOGUE_RELU)) sum = sum < 0 ? 0 : sum;
    if (Has(CUBLASLT_EPILOGUE_GELU)) {
      if (Has(CUBLASLT_EPILOGUE_GELU_AUX)) Store(type, matrix, place, sum);
      sum = Gelu(sum);
    }
    return sum;
  }

  // Sums an operand over the reduction axis of the product.
  void Sum(const Matrix& a, const Matrix& b) {
    for (int64_t k = 0; k < a.columns(); ++k) {
      for (int64_t row = 0; row < a.rows() && kind == CUBLASLT_EPILOGUE_BGRADA; ++row) sums[static_cast<size_t>(row)] += a.At(0, row, k);
      for (int64_t column = 0; column < b.columns() && kind == CUBLASLT_EPILOGUE_BGRADB; ++column)
        sums[static_cast<size_t>(column)] += b.At(0, k, column);
    }
  }

  void StoreSums(const Matrix& d) const {
    const int64_t count = kind == CUBLASLT_EPILOGUE_BGRADA ? d.rows() : kind == CUBLASLT_EPILOGUE_BGRADB ? d.columns() : 0;
    for (int64_t i = 0; i < count; ++i) Store(type, vector, i, sums[static_cast<size_t>(i)]);
  }
};

// Whether the library supports the epilogue with this description.
bool TakesEpilogue(const Desc& desc, const Layout& d) {
  const int kind = Get(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const auto leading = Get<int64_t>(desc.attributes, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  const auto address = [&](int attribute) { return Get<uintptr_t>(desc.attributes, attribute, 0); };
  const bool gelu = (kind & CUBLASLT_EPILOGUE_GELU) != 0;
  const bool vector = (kind & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0;
  // The ReLU mask is opaque, and Gradloom never requests it, nor GELU's derivative.
  if ((kind & CUBLASLT_EPILOGUE_RELU_AUX) == CUBLASLT_EPILOGUE_RELU_AUX || (kind & CUBLASLT_EPILOGUE_DRELU) == CUBLASLT_EPILOGUE_DRELU ||
      (kind & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
    return false;
  if (kind != CUBLASLT_EPILOGUE_DEFAULT && kind != CUBLASLT_EPILOGUE_BIAS && d.type == CUDA_R_64F) return false;
  if (gelu && (leading % 8 != 0 || leading < static_cast<int64_t>(d.rows))) return false;
  if (gelu && (address(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) == 0 || address(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) % 16 != 0))
    return false;
  return !vector || address(CUBLASLT_MATMUL_DESC_BIAS_POINTER) != 0;
}

void Multiply(const Desc& desc, double alpha, const Matrix& a, const Matrix& b, double beta, const Matrix& c, const Matrix& d) {
  const int batches = Get<int32_t>(d.layout.attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1);
  Epilogue epilogue(desc, d);
  for (int batch = 0; batch < batches; ++batch) {
    const std::vector<double> left = a.Columns(batch), right = b.Columns(batch);
    const auto rows = static_cast<size_t>(d.rows()), depth = static_cast<size_t>(a.columns());
    std::vector<double> made(rows * static_cast<size_t>(d.columns()));
    for (size_t column = 0; column * rows < made.size(); ++column) {
      double* const sums = made.data() + column * rows;
      for (size_t k = 0; k < depth; ++k) {
        const double* const of_a = left.data() + k * rows;
        const double of_b = right[column * depth + k];
        for (size_t row = 0; row < rows; ++row) sums[row] += of_a[row] * of_b;
      }
      for (size_t row = 0; row < rows; ++row) {
        const auto i = static_cast<int64_t>(row), j = static_cast<int64_t>(column);
        const double sum = sums[row] * alpha;
        sums[row] = epilogue(i, j, beta == 0 ? sum : sum + beta * c.At(batch, i, j));
      }
    }
    size_t next = 0;
    for (int64_t column = 0; column < d.columns(); ++column) {
      for (int64_t row = 0; row < d.rows(); ++row)
        Store(d.layout.type, const_cast<void*>(d.data), d.Place(batch, row, column), made[next++]);
    }
  }
  epilogue.Sum(a, b);
  epilogue.StoreSums(d);
}

}  // namespace

void gradloom::emulated::SetBlasHasAlgorithms(bool all) { HasAlgorithms() = all; }
void gradloom::emulated::SetBlasHasEpilogues(bool all) { HasEpilogues() = all; }
void gradloom::emulated::SetBlasAlgorithms(int count, int fastest) { TheAlgorithms() = {count, fastest}; }
int gradloom::emulated::BlasQueries() { return TheAlgorithms().asked; }
std::set<int> gradloom::emulated::BlasRan() { return TheAlgorithms().ran; }

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
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete Of(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Of(preference)->attributes[attribute].assign(static_cast<const char*>(value), bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int most, cublasLtMatmulHeuristicResult_t results[], int* count) {
  ++TheAlgorithms().asked;
  const int kind = Get(Of(desc)->attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const bool plain = kind == CUBLASLT_EPILOGUE_DEFAULT || kind == CUBLASLT_EPILOGUE_BIAS;
  const bool has = HasAlgorithms() && (plain || HasEpilogues()) && TakesEpilogue(*Of(desc), *Of(d));
  *count = has ? std::min(most, TheAlgorithms().count) : 0;
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i + 1);
    for (size_t k = 0; k < 4; ++k) results[i].algo.data[1 + k] = Get<uint32_t>(Of(preference)->attributes, kAlignments[k], 0);
  }
  return has ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  const bool known = algorithm->data[0] >= 1 && algorithm->data[0] <= static_cast<uint64_t>(TheAlgorithms().count);
  return known && TakesEpilogue(*Of(desc), *Of(d)) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t given, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Desc desc = *Of(given);
  if (algorithm->data[0] == 0) return CUBLAS_STATUS_INVALID_VALUE;
  const bool slow = static_cast<int>(algorithm->data[0]) < TheAlgorithms().fastest;
  TheAlgorithms().ran.insert(static_cast<int>(algorithm->data[0]));
  if (!TakesEpilogue(desc, *Of(d_layout))) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto transposed = [&](int attribute) { return Get(desc.attributes, attribute, CUBLAS_OP_N) != CUBLAS_OP_N; };
  const Matrix left{*Of(a_layout), a, transposed(CUBLASLT_MATMUL_DESC_TRANSA)},
      right{*Of(b_layout), b, transposed(CUBLASLT_MATMUL_DESC_TRANSB)};
  const Matrix addend{*Of(c_layout), c}, result{*Of(d_layout), d};
  if (left.columns() != right.rows() || left.rows() != result.rows() || right.columns() != result.columns())
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* const addresses[] = {a, b, c, d};
  for (size_t k = 0; k < 4; ++k) {
    if (!IsAligned(addresses[k], algorithm->data[1 + k])) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const double scale = Load(desc.scale, alpha, 0), add = Load(desc.scale, beta, 0);
  gradloom::cuda::EmulatedLaunch(stream, [=] {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::memset(workspace, 0xA5, workspace_bytes);
    Multiply(desc, scale, left, right, add, addend, result);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

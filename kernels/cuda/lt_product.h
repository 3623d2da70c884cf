// A matrix product by cuBLASLt, prepared once: its descriptor, and an algorithm that fits the scratch memory.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/rows/blas.h"

namespace gradloom::cuda {

class LtProduct {
 public:
  // Throws Error(kDevice) if the library fails. `libraries` must outlive the constructor, and its cuBLASLt handle must outlive the product.
  LtProduct(const BlasProduct& product, Libraries& libraries);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // Whether cuBLASLt has an algorithm for the product. Run() requires one.
  bool has_algorithm() const { return has_algorithm_; }

  // Enqueues the product, which is not one with GELU's derivative. Inputs: a, b and, if the product has one, the addend. Outputs: d and, if
  // the product has them, the sums or the operand of GELU. `scratch` has BlasScratchBytes(product) bytes. Legal during graph capture.
  // Throws Error(kDevice).
  void Run(const void* const* inputs, void* const* outputs, void* scratch, CUstream_st* stream);

 private:
  // A matrix as cuBLASLt sees it, in column-major order: `columns` columns of `rows` contiguous elements.
  class MatrixLayout {
   public:
    MatrixLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading, int64_t batch, int64_t step);
    ~MatrixLayout() { cublasLtMatrixLayoutDestroy(layout_); }
    MatrixLayout(const MatrixLayout&) = delete;
    MatrixLayout& operator=(const MatrixLayout&) = delete;
    cublasLtMatrixLayout_t get() const { return layout_; }

   private:
    cublasLtMatrixLayout_t layout_ = nullptr;
  };

  cublasStatus_t Enqueue(const void* const* inputs, void* const* outputs, void* scratch, CUstream_st* stream);
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  bool has_vector() const;
  bool has_matrix() const;
  void SetAddresses(const void* vector, const void* matrix);
  void ChooseAlgorithm(Libraries& libraries);
  std::vector<cublasLtMatmulAlgo_t> Heuristics(int max_count);
  void Measure(const std::vector<cublasLtMatmulAlgo_t>& found, Libraries& libraries);
  std::string Problem() const;
  bool Restore(const std::string& text);

  BlasProduct product_;
  cublasLtHandle_t blas_;
  MatrixLayout b_, a_, d_;
  size_t workspace_bytes_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_algorithm_ = false;
};

}  // namespace gradloom::cuda

// A matrix product by cuBLASLt, prepared once: its description, and an algorithm within its scratch memory.
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
  // Throws Error(kDevice) where the library fails. `libraries` outlives the constructor, its handle the product.
  LtProduct(const BlasProduct& product, Libraries& libraries);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // Whether the library has an algorithm for it. Nothing runs without one.
  bool has_algorithm() const { return has_algorithm_; }

  // Enqueues it: inputs are a, b and, where the product has it, the addend or GELU's operand; outputs d and, where it has them, the sums or
  // GELU's operand. `scratch`: BlasScratchBytes(product) bytes. Legal while a graph is captured. Throws Error(kDevice).
  void Run(const void* const* inputs, void* const* outputs, void* scratch, CUstream_st* stream);

 private:
  // As cuBLASLt sees a matrix: `rows` neighbours in memory, `columns` of them.
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
  std::vector<cublasLtMatmulAlgo_t> Found(int most);
  void Measure(const std::vector<cublasLtMatmulAlgo_t>& found, Libraries& libraries);
  std::string Problem() const;
  bool Take(const std::string& text);

  BlasProduct product_;
  cublasLtHandle_t blas_;
  MatrixLayout b_, a_, d_;
  size_t workspace_bytes_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_algorithm_ = false;
};

}  // namespace gradloom::cuda

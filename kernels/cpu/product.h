// Products of float32 matrices inside kernels, computed by oneDNN.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/padded_operand.h"

namespace gradloom {

// c[m, n] = a[m, k] b[k, n], or with `adds`, c += a b. Strides are in elements; the rows of c are contiguous.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_col = 1, b_row = 0, b_col = 1, c_row = 0;
  bool adds = false;
  // b is packed once and used in many products.
  bool packs = false;
};

// A product whose memory is not known yet, for the size of its scratch memory.
class ProductPlan {
 public:
  ProductPlan(const ProductShape& shape, int threads);

  int64_t scratch_bytes() const { return scratch_bytes_; }  // without the packed b

 private:
  friend class PreparedProduct;
  void Prepare(const ProductShape& shape);

  dnnl::memory::desc a_, b_, c_;
  dnnl::matmul::primitive_desc desc_;
  PaddedOperand padded_;      // never b if b is packed
  int64_t packed_bytes_ = 0;  // 0 if b is not packed
  int64_t scratch_bytes_ = 0;
  int threads_;
};

class PreparedProduct {
 public:
  explicit PreparedProduct(const ProductPlan& plan);

  // Packs b for the following runs. Only if ProductShape::packs is set.
  void Pack(const float* b, void* packed);

  // `b` is the matrix, or the result of Pack if ProductShape::packs is set.
  void Run(const float* a, const void* b, float* c, void* scratch);

 private:
  PaddedOperand padded_;
  int threads_;
  OneDnnPrimitive product_;
  std::optional<OneDnnPrimitive> pack_;
};

}  // namespace gradloom

// Products of float32 matrices inside kernels, computed by oneDNN or, where they are faster, by our own loops.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cpu/blocked_product.h"
#include "kernels/cpu/onednn.h"

namespace gradloom {

// c[m, n] = a[m, k] b[k, n], or with `adds`, c += a b. Strides are in elements; the rows of c are contiguous.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_col = 1, b_row = 0, b_col = 1, c_row = 0;
  bool adds = false;
};

// A product whose memory is not known yet, for the size of its scratch memory.
class ProductPlan {
 public:
  ProductPlan(const ProductShape& shape, int threads);

  int64_t scratch_bytes() const;

 private:
  friend class PreparedProduct;
  void PrepareOneDnn(const ProductShape& shape);

  std::optional<BlockedProduct> own_;  // or oneDNN's:
  dnnl::memory::desc a_, b_, c_;
  dnnl::matmul::primitive_desc desc_;
  int threads_;
};

class PreparedProduct {
 public:
  explicit PreparedProduct(const ProductPlan& plan);

  void Run(const float* a, const float* b, float* c, void* scratch);

 private:
  std::optional<BlockedProduct> own_;
  std::optional<OneDnnPrimitive> library_;
};

}  // namespace gradloom

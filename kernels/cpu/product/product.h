// Products of float32 matrices inside kernels, computed by oneDNN or, where they are faster, by our own loops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product/blocked_product.h"
#include "kernels/cpu/product/matrix_product.h"

namespace gradloom {

class LongProduct;

// c[m, n] = a[m, k] b[k, n], or with `adds`, c += a b. Strides are in elements; the rows of c are contiguous.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_col = 1, b_row = 0, b_col = 1, c_row = 0;
  bool adds = false;
};

// A product whose memory is not known yet, for the size of its scratch memory.
class ProductPlan {
 public:
  // With `fixed_order`, results do not depend on the number of threads: the library is not given what it would divide by it, which are long
  // sums (kernels/cpu/product/long_product.h) and, without AVX-512, rows.
  ProductPlan(const ProductShape& shape, int threads, bool fixed_order = false);

  int64_t scratch_bytes() const;

 private:
  friend class PreparedProduct;
  void PrepareOneDnn(const ProductShape& shape);

  // One of these, or oneDNN's.
  std::optional<BlockedProduct> own_;
  std::optional<MatrixProduct> long_;
  dnnl::memory::desc a_, b_, c_;
  dnnl::matmul::primitive_desc desc_;
  int threads_;
};

class PreparedProduct {
 public:
  explicit PreparedProduct(const ProductPlan& plan);
  ~PreparedProduct();
  PreparedProduct(PreparedProduct&& other) noexcept;

  void Run(const float* a, const float* b, float* c, void* scratch);

 private:
  std::optional<BlockedProduct> own_;
  std::unique_ptr<LongProduct> long_;
  std::optional<OneDnnPrimitive> library_;
};

}  // namespace gradloom

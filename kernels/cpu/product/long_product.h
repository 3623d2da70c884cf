// Products of float32 matrices with few, long sums, computed by oneDNN in parts of k. The order of the additions depends only on the
// shapes. oneDNN itself divides such sums among its threads, so that the rounding would depend on their number.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/product/matrix_product.h"
#include "kernels/cpu/product/product.h"

namespace gradloom {

class LongProduct : public Kernel {
 public:
  static bool Serves(const MatrixProduct& product);

  // For products for which Serves is true.
  static int64_t ScratchBytes(const MatrixProduct& product, int threads);
  LongProduct(const MatrixProduct& product, int threads);

  // The inputs are a, b and, if the product has one, the bias.
  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override;

 private:
  // The length of a part is floor(k / parts), or one more. Each part is divided into `strips` of the columns of b, all but the last with
  // strip_columns of them. The scratch memory contains the sums of all parts, followed by the memory of each thread.
  struct Parts {
    int64_t count, strips = 1, strip_columns, sums_bytes, thread_bytes = 0;
    int threads;
    std::vector<ProductPlan> kinds;  // by length, then by whether it is the last strip

    Parts(const MatrixProduct& product, int threads);
  };

  MatrixProduct product_;
  Parts parts_;
  std::vector<PreparedProduct> products_;  // of each thread and kind
};

}  // namespace gradloom

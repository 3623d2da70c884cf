// Products of float32 matrices with long sums and few of them, by oneDNN in parts of k: the order of the additions depends on the shapes
// alone. The library parts such sums among its threads, so that each number of threads rounds otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/cpu/product.h"

namespace gradloom {

class LongProduct : public Kernel {
 public:
  static bool Serves(const MatrixProduct& product);

  // Both of a product that Serves.
  static int64_t ScratchBytes(const MatrixProduct& product, int threads);
  LongProduct(const MatrixProduct& product, int threads);

  // Of a, b and, where the product has one, the bias.
  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override;

 private:
  // Parts are floor(k / parts) long, or one more. The sums of all lie in the scratch memory, and behind them what each thread works with.
  struct Parts {
    int64_t count, sums_bytes, thread_bytes = 0;
    int threads;
    std::vector<ProductPlan> lengths;

    Parts(const MatrixProduct& product, int threads);
  };

  MatrixProduct product_;
  Parts parts_;
  std::vector<PreparedProduct> products_;  // of each thread and length
};

}  // namespace gradloom

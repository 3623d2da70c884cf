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

  // Of a product that Serves.
  LongProduct(const MatrixProduct& product, int threads);

  int64_t scratch_bytes() const;
  // Of a, b and, where the product has one, the bias.
  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override;

 private:
  int64_t parts() const { return static_cast<int64_t>(begins_.size()); }
  int64_t sums_bytes() const;

  MatrixProduct product_;
  std::vector<int64_t> begins_;  // along k, of each part
  std::vector<PreparedProduct> products_;
  int64_t pad_bytes_ = 0;  // scratch memory of a part while it is computed
  int threads_;
};

}  // namespace gradloom

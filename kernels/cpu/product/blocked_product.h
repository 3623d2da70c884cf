// Products of matrices by our own loops, in blocks that fit into a core's caches. Blocks of 16-bit elements are widened to float32 on the
// way, so memory traffic consists of 16-bit elements only, and each result is rounded once. Products of float32 matrices are an alternative
// to oneDNN's, which are slow on processors without AVX-512 (docs/benchmarks.md, "Matrix products without AVX-512"). Each result is one
// chain of float32 additions along k, whatever the blocks and threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/product/matrix_product.h"
#include "runtime/base/dtype.h"

namespace gradloom {

// Whether our own products of float32 matrices are faster than oneDNN's on this processor.
bool PrefersBlockedProducts();
// False for products with so few rows or columns that packing takes longer than multiplying.
bool PackingPaysOff(const MatrixProduct& product);

class BlockedProduct {
 public:
  // All operands have the type `dtype`: float32, float16 or bfloat16. The product must not be empty (work() > 0), and the bias must have no
  // rows. In each of a and b, one of the strides must be 1.
  BlockedProduct(MatrixProduct product, DType dtype, int threads);

  bool has_bias() const { return product_.has_bias; }
  int64_t scratch_bytes() const;

  // `bias` is null if the product has none.
  void Run(const void* a, const void* b, const void* bias, void* c, void* scratch) const;

  // Rows of c are `c_row` elements apart; with `adds`, the product is added to c. Only for one product of float32 matrices, with alpha = 1
  // and without a bias.
  void SetResult(int64_t c_row, bool adds) {
    c_row_ = c_row;
    adds_ = adds;
  }

 private:
  // The float32 memory of one thread.
  struct Parts {
    float *a, *b, *c, *rows;
  };
  // A block of c: rows from i and columns from j of matrix `matrix`.
  struct Block {
    int64_t matrix, i, j, rows, columns;
  };
  struct Operands {
    const void *a, *b;
    const float* bias;
    void* c;
  };

  void ChooseBlocks(int threads);
  bool widens() const { return dtype_ != DType::kFloat32; }
  int64_t part_floats() const;
  int64_t bias_floats() const;
  Block BlockAt(int64_t task) const;
  void Multiply(const Block& block, const Operands& operands, bool packed, const Parts& parts) const;
  void PackB(const void* b, int64_t at, int64_t depth, int64_t columns, const Parts& parts) const;
  void SetA(const void* a, int64_t at, int64_t depth, int64_t rows, MatrixArgs& args, float* to) const;
  void WidenA(const void* a, int64_t at, int64_t depth, int64_t rows, MatrixArgs& args, float* to) const;

  const Loops& loops_ = BestLoops();
  MatrixProduct product_;
  DType dtype_;
  int threads_ = 1;
  int64_t c_row_;
  bool adds_ = false;
  int64_t block_rows_ = 0, block_columns_ = 0, row_blocks_ = 0, column_blocks_ = 0;
  std::vector<std::pair<int64_t, int64_t>> offsets_;  // offsets of the matrices of a and b, per matrix of c
};

}  // namespace gradloom

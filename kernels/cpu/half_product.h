// Products of matrices of 16-bit elements. Blocks that fit into a core's caches are widened to float32 and multiplied by the vector loops,
// so memory traffic consists of 16-bit elements only. Each result is one chain of float32 additions along k, whatever the blocks and
// threads, and is rounded once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/matrix_product.h"
#include "runtime/base/dtype.h"

namespace gradloom {

class HalfProduct {
 public:
  // All operands have the type `dtype`: float16 or bfloat16. The product must not be empty (work() > 0), and the bias must have no rows.
  HalfProduct(MatrixProduct product, DType dtype, int threads);

  bool has_bias() const { return product_.has_bias; }
  int64_t scratch_bytes() const;

  // `bias` is null if the product has none.
  void Run(const void* a, const void* b, const void* bias, void* c, void* scratch) const;

 private:
  // The float32 memory of one thread.
  struct Parts {
    float *a, *b, *c, *rows;
  };
  // A block of c: rows from i and columns from j of matrix `matrix`.
  struct Block {
    int64_t matrix, i, j, rows, columns;
  };

  void ChooseBlocks(int threads);
  int64_t part_floats() const;
  int64_t bias_floats() const;
  Block BlockAt(int64_t task) const;
  void Multiply(const Block& block, const void* a, const void* b, bool packed, const float* bias, void* c, const Parts& parts) const;
  void PackB(const void* b, int64_t at, int64_t depth, int64_t columns, const Parts& parts) const;
  void WidenA(const void* a, int64_t at, int64_t depth, int64_t rows, MatrixArgs& args, float* to) const;

  const Loops& loops_ = BestLoops();
  MatrixProduct product_;
  DType dtype_;
  int threads_ = 1;
  int64_t block_rows_ = 0, block_columns_ = 0, row_blocks_ = 0, column_blocks_ = 0;
  std::vector<std::pair<int64_t, int64_t>> offsets_;  // offsets of the matrices of a and b, per matrix of c
};

}  // namespace gradloom

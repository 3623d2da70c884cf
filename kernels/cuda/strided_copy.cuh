// Copies between two tensors of one shape that lie in memory each in its own way.
#pragma once

#include <vector>

#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// Where the elements of a tensor lie, in elements: one stride an axis, and the place of the first.
struct Strided {
  std::vector<int64_t> strides;
  int64_t start = 0;
};

// Strides along the axes of an operand whose layout only permutes them.
std::vector<int64_t> StridesOf(const OperandType& operand);

// Made at load, run at each step. Words of up to 16 bytes are copied where rows allow it; where what is next to each other on one side
// is not on the other, tiles go through shared memory.
class StridedCopy {
 public:
  // Throws Error(kUnsupported) where more than 8 axes are left after neighbours became one.
  StridedCopy(const Shape& shape, int64_t element_bytes, const Strided& from, const Strided& to);

  void Run(const void* from, void* to, cudaStream_t stream) const;

 private:
  enum class Way { kBytes, kElements, kTiles };

  Way way_ = Way::kElements;
  int64_t word_bytes_ = 1, words_ = 0;
  int64_t from_start_ = 0, to_start_ = 0;
  // From, to; for tiles without the two axes of a matrix, whose element (r, c) lies at r + c from_step and at r to_step + c.
  Walk<2> walk_;
  int64_t rows_ = 1, columns_ = 1, from_step_ = 1, to_step_ = 1;
};

}  // namespace gradloom::cuda

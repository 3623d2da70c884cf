// Copies between two tensors of the same shape with arbitrary strides.
#pragma once

#include <vector>

#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {

// The layout of a tensor: a stride per axis, and the offset of the first element, in elements.
struct Strided {
  std::vector<int64_t> strides;
  int64_t start = 0;
};

// Strides along the axes of an operand whose layout is a permutation.
std::vector<int64_t> StridesOf(const OperandType& operand);

// A copy prepared at load and run at each step. It copies words of up to 16 bytes if rows allow it. If the contiguous axes of the two sides
// differ, it transposes tiles in shared memory.
class StridedCopy {
 public:
  // Throws Error(kUnsupported) if more than kMaxAxes axes remain after merging adjacent ones.
  StridedCopy(const Shape& shape, int64_t element_bytes, const Strided& from, const Strided& to);

  void Run(const void* from, void* to, cudaStream_t stream) const;

 private:
  enum class Strategy { kBytes, kElements, kTiles };

  Strategy strategy_ = Strategy::kElements;
  int64_t word_bytes_ = 1, words_ = 0;
  int64_t from_start_ = 0, to_start_ = 0;
  // Source, target. For tiles, without the two axes of a matrix, whose element (r, c) is at r + c from_step in the source and at r to_step
  // + c in the target.
  OffsetCalculator<2> offsets_;
  int64_t rows_ = 1, columns_ = 1, from_step_ = 1, to_step_ = 1;
};

}  // namespace gradloom::cuda

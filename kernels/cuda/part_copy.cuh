// Copies several heads of an attention operand to contiguous matrices, and back.
#pragma once

#include <cstdint>

#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/rows/dnn_tensor.h"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {

// The strides of a part (DnnTensor) and of the tensor it belongs to. A thread copies kSize consecutive elements; sizes are multiples of
// that.
template <int kSize>
struct PartCopy {
  int64_t heads, length, size, group;    // of the part; `group` of its heads share a head of the tensor
  int64_t sample_step, head_step, step;  // of the tensor
  int64_t count;                         // of the part, in groups of kSize elements

  PartCopy(const DnnTensor& part, const DnnTensor& tensor, int64_t shared)
      : heads(part.dims[1]),
        length(part.dims[2]),
        size(part.dims[3] / kSize),
        group(shared),
        sample_step(tensor.strides[0]),
        head_step(tensor.strides[1]),
        step(tensor.strides[2]),
        count(part.elements() / kSize) {}

  // Element i of the part's heads in the tensor, as offsets into the tensor and into the part. In the part it is in the first of the heads
  // that share the tensor's head; the others follow `matrix` elements apart.
  struct Offsets {
    int64_t tensor, part;
  };
  GRADLOOM_DEVICE int64_t matrix() const { return length * size * kSize; }
  GRADLOOM_DEVICE Offsets At(int64_t i) const {
    const Quotient position = Divide(i, size), head = Divide(position.quotient, length), sample = Divide(head.quotient, heads / group);
    return {sample.quotient * sample_step + sample.rest * head_step + head.rest * step + position.rest * kSize,
            head.quotient * group * matrix() + (head.rest * size + position.rest) * kSize};
  }
};

// Copies from the tensor to the part; heads that share a head of the tensor get a copy each.
template <int kSize, typename T>
void Pack(const PartCopy<kSize>& copy, const T* from, T* to, cudaStream_t stream) {
  using Vector = AlignedVector<T, kSize>;
  ForEachElement(
      copy.count / copy.group, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto offsets = copy.At(i);
        const Vector vector = *reinterpret_cast<const Vector*>(from + offsets.tensor);
        for (int64_t g = 0; g < copy.group; ++g) *reinterpret_cast<Vector*>(to + offsets.part + g * copy.matrix()) = vector;
      });
}

// Copies from the part to the tensor; heads that share a head of the tensor are summed.
template <int kSize, typename U, typename T>
void Unpack(const PartCopy<kSize>& copy, const U* from, T* to, cudaStream_t stream) {
  using Vector = AlignedVector<U, kSize>;
  ForEachElement(
      copy.count / copy.group, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto offsets = copy.At(i);
        float sums[kSize] = {};
        for (int64_t g = 0; g < copy.group; ++g) {
          const Vector vector = *reinterpret_cast<const Vector*>(from + offsets.part + g * copy.matrix());
          for (int r = 0; r < kSize; ++r) sums[r] += static_cast<float>(vector.at[r]);
        }
        AlignedVector<T, kSize> result;
        for (int r = 0; r < kSize; ++r) result.at[r] = static_cast<T>(sums[r]);
        *reinterpret_cast<AlignedVector<T, kSize>*>(to + offsets.tensor) = result;
      });
}

}  // namespace gradloom::cuda

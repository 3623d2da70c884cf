// Copies several heads of an attention operand to contiguous matrices, and back.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/dnn_tensor.h"
#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// Consecutive elements that a thread moves as one word.
template <int kNumbers, typename N>
struct alignas(kNumbers * sizeof(N)) Neighbours {
  N at[kNumbers];
};

// The strides of a part (DnnTensor) and of the tensor it belongs to. A thread copies kNumbers consecutive elements; sizes are multiples of
// that.
template <int kNumbers>
struct PartCopy {
  int64_t heads, length, size, group;    // of the part; `group` of its heads share a head of the tensor
  int64_t sample_step, head_step, step;  // of the tensor
  int64_t count;                         // of the part, in groups of kNumbers elements

  PartCopy(const DnnTensor& part, const DnnTensor& tensor, int64_t shared)
      : heads(part.dims[1]),
        length(part.dims[2]),
        size(part.dims[3] / kNumbers),
        group(shared),
        sample_step(tensor.strides[0]),
        head_step(tensor.strides[1]),
        step(tensor.strides[2]),
        count(part.elements() / kNumbers) {}

  // Element i of the part's heads in the tensor, as offsets into the tensor and into the part. In the part it is in the first of the heads
  // that share the tensor's head; the others follow `matrix` elements apart.
  struct Place {
    int64_t tensor, part;
  };
  GRADLOOM_DEVICE int64_t matrix() const { return length * size * kNumbers; }
  GRADLOOM_DEVICE Place At(int64_t i) const {
    const Quotient position = Divide(i, size), head = Divide(position.quotient, length), sample = Divide(head.quotient, heads / group);
    return {sample.quotient * sample_step + sample.rest * head_step + head.rest * step + position.rest * kNumbers,
            head.quotient * group * matrix() + (head.rest * size + position.rest) * kNumbers};
  }
};

// Copies from the tensor to the part; heads that share a head of the tensor get a copy each.
template <int kNumbers, typename T>
void Pack(const PartCopy<kNumbers>& copy, const T* from, T* to, cudaStream_t stream) {
  using Some = Neighbours<kNumbers, T>;
  ForEachElement(
      copy.count / copy.group, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto place = copy.At(i);
        const Some some = *reinterpret_cast<const Some*>(from + place.tensor);
        for (int64_t g = 0; g < copy.group; ++g) *reinterpret_cast<Some*>(to + place.part + g * copy.matrix()) = some;
      });
}

// Copies from the part to the tensor; heads that share a head of the tensor are summed.
template <int kNumbers, typename U, typename T>
void Unpack(const PartCopy<kNumbers>& copy, const U* from, T* to, cudaStream_t stream) {
  using Some = Neighbours<kNumbers, U>;
  ForEachElement(
      copy.count / copy.group, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto place = copy.At(i);
        float sums[kNumbers] = {};
        for (int64_t g = 0; g < copy.group; ++g) {
          const Some some = *reinterpret_cast<const Some*>(from + place.part + g * copy.matrix());
          for (int r = 0; r < kNumbers; ++r) sums[r] += static_cast<float>(some.at[r]);
        }
        Neighbours<kNumbers, T> made;
        for (int r = 0; r < kNumbers; ++r) made.at[r] = static_cast<T>(sums[r]);
        *reinterpret_cast<Neighbours<kNumbers, T>*>(to + place.tensor) = made;
      });
}

}  // namespace gradloom::cuda

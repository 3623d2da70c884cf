// Copies of some heads of an attention's operand, one matrix behind the other.
#pragma once

#include <cstdint>

#include "kernels/cuda/rows/dnn_tensor.h"
#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// Neighbours in memory that a thread takes together.
template <int kNumbers, typename N>
struct alignas(kNumbers * sizeof(N)) Neighbours {
  N at[kNumbers];
};

// A copy of a part: its places, and those of the tensor. kNumbers neighbours are copied by a thread; sizes are multiples of that.
template <int kNumbers>
struct PartCopy {
  int64_t heads, length, size, group;    // of the part; how many of its heads share one of the tensor
  int64_t sample_step, head_step, step;  // of the tensor
  int64_t count;                         // of groups of neighbours, of all heads of the part

  PartCopy(const DnnTensor& part, const DnnTensor& tensor, int64_t shared)
      : heads(part.dims[1]),
        length(part.dims[2]),
        size(part.dims[3] / kNumbers),
        group(shared),
        sample_step(tensor.strides[0]),
        head_step(tensor.strides[1]),
        step(tensor.strides[2]),
        count(part.elements() / kNumbers) {}

  // Element i of the tensor's heads that belong to the part, as an offset in the tensor and in the part, where it is of the first of the
  // heads that share it; the next ones are `matrix` elements apart.
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

// The part from the tensor; heads that share one of its own have a copy each.
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

// The tensor from the part; what heads that share one have is summed.
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

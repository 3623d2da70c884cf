// Tensors of the emulated cuDNN.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/cuda/rows/dnn_tensor.h"
#include "runtime/base/dtype.h"
#include "runtime/base/half.h"

namespace gradloom::cuda {

// The elements of a 16-bit or float32 tensor as doubles, indexed by their offset in memory. They are zero until loaded.
struct EmulatedTensor {
  DnnTensor tensor;
  DType dtype;
  std::vector<double> at;

  EmulatedTensor(const DnnTensor& t, DType type) : tensor(t), dtype(type) {
    int64_t last = 0;
    for (size_t dim = 0; dim < t.dims.size(); ++dim) last += (t.dims[dim] - 1) * t.strides[dim];
    at.resize(static_cast<size_t>(last + 1));
  }

  size_t Place(std::span<const int64_t> index) const {
    int64_t place = 0;
    for (size_t dim = 0; dim < index.size(); ++dim) place += index[dim] * tensor.strides[dim];
    return static_cast<size_t>(place);
  }
  double& operator[](std::initializer_list<int64_t> index) { return at[Place({index.begin(), index.size()})]; }

  void Load(const void* memory) {
    for (size_t i = 0; i < at.size(); ++i) {
      switch (dtype) {
        case DType::kFloat16: at[i] = static_cast<double>(static_cast<float>(static_cast<const Half*>(memory)[i])); break;
        case DType::kBfloat16: at[i] = static_cast<double>(static_cast<float>(static_cast<const Bfloat16*>(memory)[i])); break;
        default: at[i] = static_cast<double>(static_cast<const float*>(memory)[i]);
      }
    }
  }
  // Memory between the elements belongs to others and is not written.
  void Store(void* memory) const {
    std::vector<int64_t> index(tensor.dims.size(), 0);
    for (size_t dim = 1; dim > 0;) {
      const size_t i = Place(index);
      const auto value = static_cast<float>(at[i]);
      switch (dtype) {
        case DType::kFloat16: static_cast<Half*>(memory)[i] = value; break;
        case DType::kBfloat16: static_cast<Bfloat16*>(memory)[i] = value; break;
        default: static_cast<float*>(memory)[i] = value;
      }
      for (dim = index.size(); dim > 0 && ++index[dim - 1] == tensor.dims[dim - 1]; --dim) index[dim - 1] = 0;
    }
  }
};

}  // namespace gradloom::cuda

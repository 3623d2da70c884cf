// Places by index operands, and the parts of the family of indices.
#pragma once

#include <memory>

#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// Where an index out of range is noted.
struct IndexFault {
  DataFault* fault = nullptr;
  int site = 0;
  explicit IndexFault(const KernelSite& at) : fault(at.fault), site(at.id) {}

  // An index in [-extent, extent) as one in [0, extent), or -1 for others.
  GRADLOOM_DEVICE int64_t Checked(int64_t index, int64_t extent) const {
    if (index < -extent || index >= extent) {
      Report(fault, site, kIndexOutOfRange, index, extent);
      return -1;
    }
    return index < 0 ? index + extent : index;
  }
};

// An operand of int32 or int64.
struct Indices {
  const void* data = nullptr;
  bool wide = true;
  GRADLOOM_DEVICE int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

inline bool IsWide(const OperandType& indices) { return indices.dtype == DType::kInt64; }

// Indices into one axis.
struct AxisPlaces {
  int64_t extent = 0;

  GRADLOOM_DEVICE int64_t operator()(const Indices& indices, int64_t i, const IndexFault& fault) const {
    return fault.Checked(indices[i], extent);
  }
};

// Index tuples, each naming a row of a tensor: its leading axes in common with the indices, the next ones chosen.
struct TuplePlaces {
  int width = 0;
  int64_t per_batch = 1, batch_rows = 1;  // tuples and rows in a batch
  int64_t extents[kMaxRank] = {}, strides[kMaxRank] = {};

  TuplePlaces(const Shape& shape, const Shape& indices, int batch_dims) {
    width = static_cast<int>(indices[indices.rank() - 1]);
    per_batch = Product(indices, batch_dims, indices.rank() - 1);
    batch_rows = Product(shape, batch_dims, batch_dims + width);
    for (int k = 0; k < width; ++k) {
      extents[k] = shape[batch_dims + k];
      strides[k] = Product(shape, batch_dims + k + 1, batch_dims + width);
    }
  }

  // The row of tuple i, or -1.
  GRADLOOM_DEVICE int64_t operator()(const Indices& indices, int64_t i, const IndexFault& fault) const {
    int64_t row = Divide(i, per_batch).quotient * batch_rows;
    for (int k = 0; k < width; ++k) {
      const int64_t at = fault.Checked(indices[i * width + k], extents[k]);
      if (at < 0) return -1;
      row += at * strides[k];
    }
    return row;
  }
};

// Indices along one axis of a tensor, with its rank: all else follows from where an index stands.
struct ElementPlaces {
  Walk<1> walk;                    // of the indices without the axis, over the data
  int64_t length = 1, inner = 1;   // of the indices along the axis, and behind it
  int64_t extent = 0, stride = 1;  // of the data along the axis

  ElementPlaces(const Shape& data, const Shape& indices, int axis) {
    length = indices[axis];
    inner = Product(indices, axis + 1, indices.rank());
    extent = data[axis];
    std::vector<int64_t> strides = data.strides();
    stride = strides[static_cast<size_t>(axis)];
    Shape lines = indices;
    lines[axis] = 1;
    walk = Walk<1>(lines, {strides});
  }

  // Lines along the axis: their first index, and their first element of the data.
  GRADLOOM_DEVICE int64_t FirstIndex(int64_t line) const {
    const Quotient q = Divide(line, inner);
    return q.quotient * length * inner + q.rest;
  }
  GRADLOOM_DEVICE int64_t FirstElement(int64_t line) const { return walk(line).at[0]; }

  // The element of the data that index i names, or -1.
  GRADLOOM_DEVICE int64_t operator()(const Indices& indices, int64_t i, const IndexFault& fault) const {
    const int64_t at = fault.Checked(indices[i], extent);
    if (at < 0) return -1;
    const Quotient q = Divide(i, inner);
    return FirstElement(Divide(q.quotient, length).quotient * inner + q.rest) + at * stride;
  }
};

// scatter.cu
std::unique_ptr<Kernel> MakeGatherGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeGatherNdGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeScatterElements(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeScatterNd(const KernelCall& call, const KernelSite& site);

// select.cu
std::unique_ptr<Kernel> MakeArgMax(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeArgMin(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeCompress(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeNonZero(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeTopK(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda

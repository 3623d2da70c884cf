// Locations given by index operands, and declarations shared by the family of indexing operators.
#pragma once

#include <memory>

#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {

// Reports indices that are out of range.
struct IndexFault {
  DataFault* fault = nullptr;
  int site = 0;
  explicit IndexFault(const KernelSite& at) : fault(at.fault), site(at.id) {}

  // Maps an index in [-extent, extent) to [0, extent), and any other to -1.
  GRADLOOM_DEVICE int64_t Checked(int64_t index, int64_t extent) const {
    if (index < -extent || index >= extent) {
      Report(fault, site, kIndexOutOfRange, index, extent);
      return -1;
    }
    return index < 0 ? index + extent : index;
  }
};

// An operand of type int32 or int64.
struct Indices {
  const void* data = nullptr;
  bool wide = true;
  GRADLOOM_DEVICE int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

inline bool IsWide(const OperandType& indices) { return indices.dtype == DType::kInt64; }

// Indices into one axis.
struct AxisIndexer {
  int64_t extent = 0;

  GRADLOOM_DEVICE int64_t operator()(const Indices& indices, int64_t i, const IndexFault& fault) const {
    return fault.Checked(indices[i], extent);
  }
};

// Index tuples, each of which selects a row of a tensor. Its first axes are batch axes shared with the indices; the tuple indexes the next
// ones.
struct TupleIndexer {
  int width = 0;
  int64_t per_batch = 1, batch_rows = 1;  // per batch: tuples and rows
  int64_t extents[kMaxAxes] = {}, strides[kMaxAxes] = {};

  TupleIndexer(const Shape& shape, const Shape& indices, int batch_dims) {
    width = static_cast<int>(indices[indices.rank() - 1]);
    per_batch = Product(indices, batch_dims, indices.rank() - 1);
    batch_rows = Product(shape, batch_dims, batch_dims + width);
    for (int k = 0; k < width; ++k) {
      extents[k] = shape[batch_dims + k];
      strides[k] = Product(shape, batch_dims + k + 1, batch_dims + width);
    }
  }

  // The row selected by tuple i, or -1.
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

// Indices along one axis of a tensor of the same rank; the other coordinates are those of the index itself.
struct ElementIndexer {
  OffsetCalculator<1> offsets;     // over the indices without the axis, in the data
  int64_t length = 1, inner = 1;   // of the indices: extent of the axis, and number of elements in one step along it
  int64_t extent = 0, stride = 1;  // of the data along the axis

  ElementIndexer(const Shape& data, const Shape& indices, int axis) {
    length = indices[axis];
    inner = Product(indices, axis + 1, indices.rank());
    extent = data[axis];
    std::vector<int64_t> strides = data.strides();
    stride = strides[static_cast<size_t>(axis)];
    Shape lines = indices;
    lines[axis] = 1;
    offsets = OffsetCalculator<1>(lines, {strides});
  }

  // A line along the axis: the number of its first index, and of its first element in the data.
  GRADLOOM_DEVICE int64_t FirstIndex(int64_t line) const {
    const Quotient q = Divide(line, inner);
    return q.quotient * length * inner + q.rest;
  }
  GRADLOOM_DEVICE int64_t FirstElement(int64_t line) const { return offsets(line).at[0]; }

  // The element of the data selected by index i, or -1.
  GRADLOOM_DEVICE int64_t operator()(const Indices& indices, int64_t i, const IndexFault& fault) const {
    const int64_t at = fault.Checked(indices[i], extent);
    if (at < 0) return -1;
    const Quotient q = Divide(i, inner);
    return FirstElement(Divide(q.quotient, length).quotient * inner + q.rest) + at * stride;
  }
};

// Defined in scatter.cu.
std::unique_ptr<Kernel> MakeGatherGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeGatherNdGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeScatterElements(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeScatterNd(const KernelCall& call, const KernelSite& site);

// Defined in select.cu.
std::unique_ptr<Kernel> MakeArgMax(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeArgMin(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeCompress(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeNonZero(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeTopK(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda

// Data movement: each element of an output is read from one place of an input. Pad is in pad.cu; tensors without a data input are in
// generate.cu.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/move.cuh"
#include "kernels/cuda/strided_copy.cuh"

namespace gradloom::cuda {
namespace {

// A row-major tensor.
Strided Dense(const Shape& shape) { return {shape.strides(), 0}; }

// A kernel that copies input 0 to output 0.
std::unique_ptr<Kernel> MakeStridedCopy(const StridedCopy& copy) {
  return MakeKernel([copy](const Launch& l) { copy.Run(l.inputs[0], l.outputs[0], l.stream); });
}

// Output 0 is `shape` in row-major order, read with these strides from the input.
std::unique_ptr<Kernel> MakeDenseCopy(const KernelCall& call, const Shape& shape, const std::vector<int64_t>& strides) {
  return MakeStridedCopy(StridedCopy(shape, DTypeBytes(call.inputs[0].dtype), {strides, 0}, Dense(shape)));
}

std::unique_ptr<Kernel> MakeTranspose(const KernelCall& call, const KernelSite&) {
  const int rank = call.inputs[0].shape.rank();
  const std::vector<int64_t> own = StridesOf(call.inputs[0]);
  std::vector<int64_t> order = call.attributes.Ints("perm"), strides;
  if (order.empty()) {
    for (int axis = rank - 1; axis >= 0; --axis) order.push_back(axis);
  }
  for (int64_t axis : order) strides.push_back(own[static_cast<size_t>(AxisOf(call, axis, rank))]);
  const OperandType& out = call.outputs[0];
  return MakeStridedCopy(StridedCopy(out.shape, DTypeBytes(out.dtype), {strides, 0}, {StridesOf(out), 0}));
}

std::unique_ptr<Kernel> MakeExpand(const KernelCall& call, const KernelSite&) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  const std::vector<int64_t> own = StridesOf(in);
  std::vector<int64_t> strides(static_cast<size_t>(out.shape.rank()), 0);
  const int extra = out.shape.rank() - in.shape.rank();
  for (int axis = 0; axis < in.shape.rank(); ++axis) {
    if (in.shape[axis] != 1) strides[static_cast<size_t>(axis + extra)] = own[static_cast<size_t>(axis)];
  }
  return MakeStridedCopy(StridedCopy(out.shape, DTypeBytes(out.dtype), {strides, 0}, {StridesOf(out), 0}));
}

// The layout of a slice of `whole`. The operands from input 1 on are starts, ends, axes and steps.
Strided SliceOf(const KernelCall& call, const OperandType& whole) {
  const Shape& shape = whole.shape;
  const std::vector<int64_t> at = call.ConstantInts(1);
  std::vector<int64_t> all(at.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int64_t> axes = call.ConstantInts(3, all), by = call.ConstantInts(4, std::vector<int64_t>(at.size(), 1));
  Strided slice{StridesOf(whole), 0};
  for (size_t i = 0; i < at.size(); ++i) {
    const int axis = AxisOf(call, axes.at(i), shape.rank());
    const int64_t extent = shape[axis], start = at[i] < 0 ? at[i] + extent : at[i];
    if (by.at(i) == 0) throw Error(ErrorCode::kValue, call.op + ": step 0");
    int64_t& stride = slice.strides[static_cast<size_t>(axis)];
    slice.start += std::clamp<int64_t>(start, 0, by[i] > 0 ? extent : std::max<int64_t>(extent - 1, 0)) * stride;
    // The step of an axis with one element may be anything: the stride may wrap, as it is never used.
    stride = static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(by[i]));
  }
  return slice;
}

std::unique_ptr<Kernel> MakeSlice(const KernelCall& call, const KernelSite&) {
  const OperandType& out = call.outputs[0];
  return MakeStridedCopy(StridedCopy(out.shape, DTypeBytes(out.dtype), SliceOf(call, call.inputs[0]), {StridesOf(out), 0}));
}

// Zeros, with the gradient at the places that the slice read.
std::unique_ptr<Kernel> MakeSliceGrad(const KernelCall& call, const KernelSite&) {
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  const StridedCopy copy(in.shape, DTypeBytes(in.dtype), {StridesOf(in), 0}, SliceOf(call, out));
  return MakeKernel([copy, bytes = static_cast<size_t>(out.bytes())](const Launch& l) {
    if (bytes > 0) GRADLOOM_CUDA(cudaMemsetAsync(l.outputs[0], 0, bytes, l.stream));
    copy.Run(l.inputs[0], l.outputs[0], l.stream);
  });
}

// Part k starts at starts[k] along the axis.
std::vector<StridedCopy> PartCopies(const OperandType& whole, const std::vector<OperandType>& parts, int axis,
                                    const std::vector<int64_t>& starts, bool join) {
  std::vector<StridedCopy> copies;
  for (size_t k = 0; k < parts.size(); ++k) {
    const OperandType& part = parts[k];
    Strided in_whole{StridesOf(whole), 0};
    in_whole.start = starts[k] * in_whole.strides[static_cast<size_t>(axis)];
    if (!part.present()) {
      copies.emplace_back(Shape{0}, 1, Dense({0}), Dense({0}));
    } else if (join) {
      copies.emplace_back(part.shape, DTypeBytes(whole.dtype), Strided{StridesOf(part), 0}, in_whole);
    } else {
      copies.emplace_back(part.shape, DTypeBytes(whole.dtype), in_whole, Strided{StridesOf(part), 0});
    }
  }
  return copies;
}

std::unique_ptr<Kernel> MakeConcat(const KernelCall& call, const KernelSite&) {
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), call.outputs[0].shape.rank());
  std::vector<int64_t> starts{0};
  for (const OperandType& part : call.inputs) starts.push_back(starts.back() + part.shape[axis]);
  return MakeKernel([copies = PartCopies(call.outputs[0], call.inputs, axis, starts, true)](const Launch& l) {
    for (size_t k = 0; k < copies.size(); ++k) copies[k].Run(l.inputs[k], l.outputs[0], l.stream);
  });
}

std::unique_ptr<Kernel> MakeSplit(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  // The extents of the parts come from the operand if it is given, because an unused output has no type here.
  const std::vector<int64_t> given = call.ConstantInts(1);
  const int64_t outputs = static_cast<int64_t>(call.outputs.size());
  const int64_t count = std::max<int64_t>(call.attributes.Int("num_outputs", outputs), 1), even = (shape[axis] + count - 1) / count;
  std::vector<int64_t> starts{0};
  for (size_t k = 0; k < call.outputs.size(); ++k) starts.push_back(starts.back() + (given.empty() ? even : given.at(k)));
  return MakeKernel([copies = PartCopies(call.inputs[0], call.outputs, axis, starts, false)](const Launch& l) {
    for (size_t k = 0; k < copies.size(); ++k) copies[k].Run(l.inputs[0], l.outputs[k], l.stream);
  });
}

// Each axis becomes (repeat, extent): a broadcast over the repeats.
std::unique_ptr<Kernel> MakeTile(const KernelCall& call, const KernelSite&) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const std::vector<int64_t> own = from.strides();
  Shape split;
  std::vector<int64_t> strides;
  for (int axis = 0; axis < from.rank(); ++axis) {
    split.push_back(from[axis] == 0 ? 0 : to[axis] / from[axis]);
    split.push_back(from[axis]);
    strides.push_back(0);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  return MakeDenseCopy(call, split, strides);
}

// Transposes of six axes: [n, b, b, c, h, w] or [n, c, b, b, h, w] becomes [n, c, h, b, w, b].
std::unique_ptr<Kernel> MakeDepthToSpace(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t b = call.attributes.Int("blocksize", 1), c = shape[1] / (b * b), h = shape[2], w = shape[3], image = h * w;
  const Shape wide{shape[0], c, h, b, w, b};
  if (call.attributes.String("mode", "DCR") == "CRD")
    return MakeDenseCopy(call, wide, {shape[1] * image, b * b * image, w, b * image, 1, image});
  return MakeDenseCopy(call, wide, {shape[1] * image, image, w, b * c * image, 1, c * image});
}

std::unique_ptr<Kernel> MakeSpaceToDepth(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t b = call.attributes.Int("blocksize", 1), c = shape[1], h = shape[2] / b, w = shape[3] / b;
  const int64_t row = w * b, image = h * b * row;
  if (call.attributes.String("mode", "DCR") == "CRD")
    return MakeDenseCopy(call, {shape[0], c, b, b, h, w}, {c * image, image, row, 1, b * row, b});
  return MakeDenseCopy(call, {shape[0], b, b, c, h, w}, {c * image, row, 1, image, b * row, b});
}

// The same bytes in the same order.
std::unique_ptr<Kernel> MakeView(const KernelCall& call, const KernelSite&) {
  return MakeKernel([bytes = static_cast<size_t>(call.outputs[0].bytes())](const Launch& l) {
    if (bytes == 0 || l.inputs[0] == l.outputs[0]) return;
    GRADLOOM_CUDA(cudaMemcpyAsync(l.outputs[0], l.inputs[0], bytes, cudaMemcpyDeviceToDevice, l.stream));
  });
}

// The elements with column - row >= k (<= k unless `upper`) of matrices, else zero.
template <typename T>
void KeepTriangle(int64_t n, const T* in, T* out, int64_t rows, int64_t columns, bool upper, int64_t k, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, columns);
        const int64_t diagonal = at.rest - Divide(at.quotient, rows).rest;
        out[i] = (upper ? diagonal >= k : diagonal <= k) ? in[i] : T{0};
      });
}

std::unique_ptr<Kernel> MakeTrilu(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const bool upper = call.attributes.Int("upper", 1) != 0;
  const int64_t n = shape.elements(), rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
  // All diagonals outside the matrix are equivalent; clamping avoids overflow.
  const int64_t k = std::clamp(call.ConstantInts(1, {0}).at(0), -rows - 1, columns + 1);
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { KeepTriangle(n, l.In<T>(0), l.Out<T>(0), rows, columns, upper, k, l.stream); });
  });
}

struct SequenceAxes {
  int64_t times, time_stride, batches, batch_stride;
};

template <typename T>
void Reverse(int64_t n, const T* in, const int64_t* lengths, T* out, const SequenceAxes& axes, const KernelSite& site,
             cudaStream_t stream) {
  DataFault* const fault = site.fault;
  const int id = site.id;
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t t = Divide(Divide(i, axes.time_stride).quotient, axes.times).rest;
        int64_t length = lengths[Divide(Divide(i, axes.batch_stride).quotient, axes.batches).rest];
        if (length < 0 || length > axes.times) {
          Report(fault, id, kLengthOutOfRange, length, axes.times);
          length = 0;
        }
        out[i] = in[t < length ? i + (length - 1 - 2 * t) * axes.time_stride : i];
      });
}

std::unique_ptr<Kernel> MakeReverseSequence(const KernelCall& call, const KernelSite& site) {
  const Shape& shape = call.inputs[0].shape;
  const int batch = AxisOf(call, call.attributes.Int("batch_axis", 1), shape.rank());
  const int time = AxisOf(call, call.attributes.Int("time_axis", 0), shape.rank());
  const std::vector<int64_t> strides = shape.strides();
  const SequenceAxes axes{shape[time], strides[static_cast<size_t>(time)], shape[batch], strides[static_cast<size_t>(batch)]};
  const int64_t n = shape.elements();
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Reverse(n, l.In<T>(0), l.In<int64_t>(1), l.Out<T>(0), axes, site, l.stream); });
  });
}

constexpr CudaKernel kMoveKernels[] = {
    {"cuda.BitCast", MakeView},
    {"cuda.Concat", MakeConcat},
    {"cuda.CastIntoWords", MakeCastIntoWords},
    {"cuda.ConstantOfShape", MakeConstantOfShape},
    {"cuda.DepthToSpace", MakeDepthToSpace},
    {"cuda.Expand", MakeExpand},
    {"cuda.EyeLike", MakeEyeLike},
    {"cuda.Flatten", MakeView},
    {"cuda.Identity", MakeView},
    {"cuda.Pad", MakePad},
    {"cuda.Range", MakeRange},
    {"cuda.Reshape", MakeView},
    {"cuda.ReverseSequence", MakeReverseSequence},
    {"cuda.Shape", MakeShape},
    {"cuda.Size", MakeSize},
    {"cuda.Slice", MakeSlice},
    {"cuda.SpaceToDepth", MakeSpaceToDepth},
    {"cuda.Split", MakeSplit},
    {"cuda.Squeeze", MakeView},
    {"cuda.Tile", MakeTile},
    {"cuda.Transpose", MakeTranspose},
    {"cuda.Trilu", MakeTrilu},
    {"cuda.Unsqueeze", MakeView},
    {"cuda.gradloom.Copy", MakeView},
    {"cuda.gradloom.PadGrad", MakePadGrad},
    {"cuda.gradloom.Reorder", MakeReorder},
    {"cuda.gradloom.SliceGrad", MakeSliceGrad},
};

}  // namespace

std::span<const CudaKernel> MoveKernels() { return kMoveKernels; }

}  // namespace gradloom::cuda

// Elements by index: gathers and OneHot. Their gradients and the scatters are in scatter.cu, selection by value in select.cu.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {
namespace {

// Row i of part o of the output is row indexer(i) of part o of the input, as words; zeros if an index is out of range.
template <typename T, typename P>
void GatherRows(int64_t outer, int64_t count, int64_t rows, int64_t words, const T* in, const Indices& indices, T* out, const P& indexer,
                const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      outer * count * words, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, words), part = Divide(at.quotient, count);
        const int64_t index = indexer(indices, part.rest, fault);
        out[e] = index < 0 ? T{} : in[(part.quotient * rows + index) * words + at.rest];
      });
}

template <typename P>
std::unique_ptr<Kernel> MakeRowGather(const KernelCall& call, int64_t outer, int64_t count, int64_t rows, int64_t row_bytes,
                                      const P& indexer, const KernelSite& site) {
  const int64_t word = WordBytesOf(row_bytes);
  return WithWord(word, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, words = row_bytes / word, wide = IsWide(call.inputs[1]), fault = IndexFault(site)](const Launch& l) {
      GatherRows(outer, count, rows, words, l.In<T>(0), Indices{l.inputs[1], wide}, l.Out<T>(0), indexer, fault, l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeGather(const KernelCall& call, const KernelSite& site) {
  const OperandType& in = call.inputs[0];
  const int rank = in.shape.rank(), axis = AxisOf(call, call.attributes.Int("axis", 0), rank);
  const int64_t row_bytes = Product(in.shape, axis + 1, rank) * DTypeBytes(in.dtype);
  return MakeRowGather(call, Product(in.shape, 0, axis), call.inputs[1].shape.elements(), in.shape[axis], row_bytes,
                       AxisIndexer{in.shape[axis]}, site);
}

std::unique_ptr<Kernel> MakeGatherNd(const KernelCall& call, const KernelSite& site) {
  const OperandType& in = call.inputs[0];
  const Shape& indices = call.inputs[1].shape;
  const int batch_dims = static_cast<int>(call.attributes.Int("batch_dims", 0));
  const TupleIndexer indexer(in.shape, indices, batch_dims);
  const int64_t row_bytes = Product(in.shape, batch_dims + indexer.width, in.shape.rank()) * DTypeBytes(in.dtype);
  return MakeRowGather(call, 1, Product(indices, 0, indices.rank() - 1), 0, row_bytes, indexer, site);
}

std::unique_ptr<Kernel> MakeGatherElements(const KernelCall& call, const KernelSite& site) {
  const OperandType& in = call.inputs[0];
  const Shape& indices = call.inputs[1].shape;
  const ElementIndexer indexer(in.shape, indices, AxisOf(call, call.attributes.Int("axis", 0), in.shape.rank()));
  const int64_t bytes = DTypeBytes(in.dtype);
  return WithWord(bytes, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, n = indices.elements(), wide = IsWide(call.inputs[1]), fault = IndexFault(site)](const Launch& l) {
      GatherRows(1, n, 0, 1, l.In<T>(0), Indices{l.inputs[1], wide}, l.Out<T>(0), indexer, fault, l.stream);
    });
  });
}

// An index outside [-depth, depth) gives only off values. `values` has off, then on.
template <typename T>
void OneHot(int64_t n, const void* indices, DType dtype, const T* values, T* out, int64_t depth, int64_t inner, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, inner), part = Divide(at.quotient, depth);
        const int64_t index = LoadAs<int64_t>(indices, dtype, part.quotient * inner + at.rest);
        out[e] = values[(index < 0 && index >= -depth ? index + depth : index) == part.rest ? 1 : 0];
      });
}

std::unique_ptr<Kernel> MakeOneHot(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.outputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", -1), shape.rank());
  const int64_t n = shape.elements(), depth = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  const DType dtype = call.inputs[0].dtype;
  return WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { OneHot(n, l.inputs[0], dtype, l.In<T>(2), l.Out<T>(0), depth, inner, l.stream); });
  });
}

constexpr CudaKernel kIndexKernels[] = {
    {"cuda.ArgMax", MakeArgMax},
    {"cuda.ArgMin", MakeArgMin},
    {"cuda.Compress", MakeCompress},
    {"cuda.Gather", MakeGather},
    {"cuda.GatherElements", MakeGatherElements},
    {"cuda.GatherND", MakeGatherNd},
    {"cuda.NonZero", MakeNonZero},
    {"cuda.OneHot", MakeOneHot},
    {"cuda.ScatterElements", MakeScatterElements},
    {"cuda.ScatterND", MakeScatterNd},
    {"cuda.TopK", MakeTopK},
    {"cuda.gradloom.GatherGrad", MakeGatherGrad},
    {"cuda.gradloom.GatherNDGrad", MakeGatherNdGrad},
};

}  // namespace

std::span<const CudaKernel> IndexKernels() { return kIndexKernels; }

}  // namespace gradloom::cuda

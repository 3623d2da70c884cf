// Writes the rows of an update to a cache, at a position per sample, and reads them again; inserts a row into a tensor.
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {
namespace {

// Element (row, i, word) of an update is element (row, position of the sample + i, word) of the cache.
struct CacheOffsets {
  int64_t rows, of_sample;  // rows: extent of [sample, ...] before the axis; of_sample: those of one sample
  int64_t extent, length;   // of the axis, in the cache and in the update
  int64_t words, word_bytes;
  bool circular, wide, has_starts;

  CacheOffsets(const KernelCall& call, const Shape& update, size_t indices) {
    const Shape& cache = call.inputs[0].shape;
    const int axis = AxisOf(call, call.attributes.Int("axis", -2), cache.rank());
    const int64_t bytes = Product(cache, axis + 1, cache.rank()) * DTypeBytes(call.inputs[0].dtype);
    rows = Product(cache, 0, axis);
    of_sample = Product(cache, 1, axis);
    extent = cache[axis];
    length = update[axis];
    word_bytes = WordBytesOf(bytes);
    words = bytes / word_bytes;
    circular = call.attributes.String("mode", "linear") == "circular";
    has_starts = Has(call.inputs, indices);
    wide = has_starts && IsWide(call.inputs[indices]);
  }

  int64_t elements() const { return rows * length * words; }

  // The element of the cache for element e of the update; -1 if it is outside, which is reported.
  GRADLOOM_DEVICE int64_t operator()(int64_t e, const void* starts, const IndexFault& fault) const {
    const Quotient word = Divide(e, words), row = Divide(word.quotient, length);
    const int64_t start = has_starts ? Indices{starts, wide}[Divide(row.quotient, of_sample).quotient] : 0;
    if (start < 0 || (!circular && start > extent - length)) {
      Report(fault.fault, fault.site, kIndexOutOfRange, start, extent - length + 1);
      return -1;
    }
    return (row.quotient * extent + (start % extent + row.rest) % extent) * words + word.rest;
  }
};

template <typename T>
void Scatter(const CacheOffsets& to, const void* starts, const T* update, T* cache, const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      to.elements(), stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const int64_t at = to(e, starts, fault);
        if (at >= 0) cache[at] = update[e];
      });
}

template <typename T>
void Gather(const CacheOffsets& from, const void* starts, const T* cache, T* update, const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      from.elements(), stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const int64_t at = from(e, starts, fault);
        update[e] = at < 0 ? T{} : cache[at];
      });
}

std::unique_ptr<Kernel> MakeTensorScatter(const KernelCall& call, const KernelSite& site) {
  const CacheOffsets to(call, call.inputs[1].shape, 2);
  const auto bytes = static_cast<size_t>(call.inputs[0].bytes());
  return WithWord(to.word_bytes, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, fault = IndexFault(site)](const Launch& l) {
      if (bytes > 0 && l.inputs[0] != l.outputs[0])
        GRADLOOM_CUDA(cudaMemcpyAsync(l.outputs[0], l.inputs[0], bytes, cudaMemcpyDeviceToDevice, l.stream));
      Scatter(to, to.has_starts ? l.inputs[2] : nullptr, l.In<T>(1), l.Out<T>(0), fault, l.stream);
    });
  });
}

std::unique_ptr<Kernel> MakeTensorGather(const KernelCall& call, const KernelSite& site) {
  const CacheOffsets from(call, call.outputs[0].shape, 1);
  return WithWord(from.word_bytes, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, fault = IndexFault(site)](const Launch& l) {
      Gather(from, from.has_starts ? l.inputs[1] : nullptr, l.In<T>(0), l.Out<T>(0), fault, l.stream);
    });
  });
}

template <typename T>
void SetRow(int64_t words, int64_t rows, const int64_t* index, const T* row, T* out, const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      words, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t at = fault.Checked(*index, rows);
        if (at >= 0) out[at * words + i] = row[i];
      });
}

std::unique_ptr<Kernel> MakeSetRow(const KernelCall& call, const KernelSite& site) {
  const int64_t row_bytes = call.inputs[2].bytes(), word = WordBytesOf(row_bytes), rows = call.inputs[0].shape[0];
  const auto bytes = static_cast<size_t>(call.inputs[0].bytes());
  return WithWord(word, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, fault = IndexFault(site)](const Launch& l) {
      if (bytes > 0 && l.inputs[0] != l.outputs[0])
        GRADLOOM_CUDA(cudaMemcpyAsync(l.outputs[0], l.inputs[0], bytes, cudaMemcpyDeviceToDevice, l.stream));
      SetRow(row_bytes / word, rows, l.In<int64_t>(1), l.In<T>(2), l.Out<T>(0), fault, l.stream);
    });
  });
}

constexpr CudaKernel kTensorScatterKernels[] = {
    {"cuda.TensorScatter", MakeTensorScatter},
    {"cuda.gradloom.SetRow", MakeSetRow},
    {"cuda.gradloom.TensorGather", MakeTensorGather},
};

}  // namespace

std::span<const CudaKernel> TensorScatterKernels() { return kTensorScatterKernels; }

}  // namespace gradloom::cuda

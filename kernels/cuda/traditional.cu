// Of ai.onnx.ml: thresholds and columns.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/index.cuh"

namespace gradloom::cuda {
namespace {

// An element and what is compared with it are double numbers, as in the reference.
template <typename T>
void Binarize(int64_t n, const T* in, T* out, double threshold, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = Convert<T>(Convert<double>(in[i]) > threshold ? 1.0f : 0.0f); });
}

std::unique_ptr<Kernel> MakeBinarizer(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  const double threshold = call.attributes.Float("threshold", 0);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) { Binarize(n, l.In<T>(0), l.Out<T>(0), threshold, l.stream); });
  });
}

// Columns of the last axis.
template <typename T>
void Extract(int64_t n, int64_t count, int64_t extent, const T* in, const Indices& columns, T* out, const IndexFault& fault,
             cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, count);
        const int64_t column = fault.Checked(columns[at.rest], extent);
        out[i] = column < 0 ? T{} : in[at.quotient * extent + column];
      });
}

std::unique_ptr<Kernel> MakeArrayFeatureExtractor(const KernelCall& call, const KernelSite& site) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t extent = shape[shape.rank() - 1], count = call.inputs[1].shape.elements();
  const int64_t n = Product(shape, 0, shape.rank() - 1) * count;
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=, wide = IsWide(call.inputs[1]), fault = IndexFault(site)](const Launch& l) {
      Extract(n, count, extent, l.In<T>(0), {l.inputs[1], wide}, l.Out<T>(0), fault, l.stream);
    });
  });
}

constexpr CudaKernel kKernels[] = {
    {"cuda.ml.ArrayFeatureExtractor", MakeArrayFeatureExtractor},
    {"cuda.ml.Binarizer", MakeBinarizer},
};

}  // namespace

std::span<const CudaKernel> TraditionalKernels() { return kKernels; }

}  // namespace gradloom::cuda

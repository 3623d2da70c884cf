// Tensors made from shapes, scalars and attributes.
#include <algorithm>

#include "kernels/cuda/move.cuh"
#include "kernels/cuda/offset_calculator.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
void Fill(int64_t n, T* out, T value, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = value; });
}

// start, start + delta, ..., each by one multiplication, so that errors do not accumulate.
template <typename T, typename A>
void Count(int64_t n, const T* start, const T* delta, T* out, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const A first = static_cast<A>(static_cast<Arithmetic<T>>(start[0])), step = static_cast<A>(static_cast<Arithmetic<T>>(delta[0]));
        out[i] = static_cast<T>(first + static_cast<A>(i) * step);
      });
}

// `one` on diagonal k, zero elsewhere.
template <typename T>
void FillDiagonal(int64_t n, T* out, int64_t columns, int64_t k, T one, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, columns);
        out[i] = at.rest - at.quotient == k ? one : T{0};
      });
}

struct Extents {
  int64_t at[gradloom::kMaxRank];
};

void Write(int64_t n, const Extents& extents, int64_t* out, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = extents.at[i]; });
}

}  // namespace

std::unique_ptr<Kernel> MakeConstantOfShape(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.outputs[0].shape.elements();
  const Tensor value = call.attributes.TensorOf("value");
  return WithBytes(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T element = value.defined() ? static_cast<const T*>(value.data())[0] : T{0};
    return MakeKernel([=](const Launch& l) { Fill(n, l.Out<T>(0), element, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeRange(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.outputs[0].shape.elements();
  return WithNumber(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, Arithmetic<T>>;
    return MakeKernel([=](const Launch& l) { Count<T, A>(n, l.In<T>(0), l.In<T>(2), l.Out<T>(0), l.stream); });
  });
}

std::unique_ptr<Kernel> MakeEyeLike(const KernelCall& call, const KernelSite&) {
  const OperandType& out = call.outputs[0];
  const int64_t n = out.shape.elements(), rows = out.shape[0], columns = out.shape[1];
  const int64_t k = std::clamp(call.attributes.Int("k", 0), -rows - 1, columns + 1);
  const Tensor one = Converted(Tensor::Scalar(1.0f).view(), out.dtype);
  return WithBytes(out.dtype, [&]<typename T>(std::type_identity<T>) {
    const T element = static_cast<const T*>(one.data())[0];
    return MakeKernel([=](const Launch& l) { FillDiagonal(n, l.Out<T>(0), columns, k, element, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeShape(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t rank = shape.rank();
  const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = clamp(call.attributes.Int("start", 0)), end = clamp(call.attributes.Int("end", rank));
  Extents extents = {};
  for (int64_t i = begin; i < end; ++i) extents.at[i - begin] = shape[static_cast<int>(i)];
  return MakeKernel([=](const Launch& l) { Write(end - begin, extents, l.Out<int64_t>(0), l.stream); });
}

std::unique_ptr<Kernel> MakeSize(const KernelCall& call, const KernelSite&) {
  const int64_t size = call.inputs[0].shape.elements();
  return MakeKernel([=](const Launch& l) { Fill(1, l.Out<int64_t>(0), size, l.stream); });
}

}  // namespace gradloom::cuda

// Moves of elements: each element of the output is read from one place of an input.
#include <numeric>

#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {
namespace {

// out[i] = in[offset + walk(i)].
template <typename T>
void Gather(int64_t n, const T* in, T* out, const Walk<1>& walk, cudaStream_t stream) {
  ForEachElement(n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = in[walk(i).at[0]]; });
}

// A kernel that reads along a walk, whatever the type.
std::unique_ptr<Kernel> Gathers(const OperandType& out, const Walk<1>& walk, int64_t offset = 0) {
  const int64_t n = out.shape.elements();
  return WithBytes(out.dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) { Gather(n, l.In<T>(0) + offset, l.Out<T>(0), walk, l.stream); });
  });
}

std::unique_ptr<Kernel> MakeTranspose(const KernelCall& call, const KernelSite&) {
  const Shape& in = call.inputs[0].shape;
  std::vector<int64_t> order = call.attributes.Ints("perm"), strides;
  if (order.empty()) {
    for (int axis = in.rank() - 1; axis >= 0; --axis) order.push_back(axis);
  }
  for (int64_t axis : order) strides.push_back(in.strides()[static_cast<size_t>(axis)]);
  return Gathers(call.outputs[0], Walk<1>(call.outputs[0].shape, {strides}));
}

constexpr CudaKernel kKernels[] = {
    {"cuda.Transpose", MakeTranspose},
};

}  // namespace

std::span<const CudaKernel> MoveKernels() { return kKernels; }

}  // namespace gradloom::cuda

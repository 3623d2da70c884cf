// What the files of normalizations share, and their declarations for the list in normalization.cu.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/reference/operands.h"
#include "runtime/base/half.h"

namespace gradloom::cuda {

// The strides, along a row, of an operand that broadcasts over the normalized axes.
inline std::vector<int64_t> AlongRow(const Shape& row, const OperandType& operand) {
  return operand.present() ? BroadcastStrides(operand.shape, row) : std::vector<int64_t>(static_cast<size_t>(row.rank()), 0);
}

inline Shape RowShape(const KernelCall& call, const Shape& x) {
  return Shape(std::vector<int64_t>(x.begin() + AxisOf(call, call.attributes.Int("axis", -1), x.rank()), x.end()));
}

// Calls f(std::type_identity<H>{}) for a 16-bit type.
template <typename F>
std::unique_ptr<Kernel> WithHalf(DType dtype, const F& f) {
  return dtype == DType::kFloat16 ? f(std::type_identity<Half>{}) : f(std::type_identity<Bfloat16>{});
}

// Defined in normalization_grad.cu.
std::unique_ptr<Kernel> MakeLayerNormGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeSumLayerNormGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeRmsNormGrad(const KernelCall& call, const KernelSite& site);

// Defined in normalization_more.cu.
std::unique_ptr<Kernel> MakeGroupNorm(const KernelCall& call, const KernelSite& site);  // and InstanceNormalization
std::unique_ptr<Kernel> MakeGroupNormGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeMeanVariance(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeLocalResponse(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeLocalResponseGrad(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda

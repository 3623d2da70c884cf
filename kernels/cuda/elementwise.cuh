// Declarations shared by the family of pointwise operators.
#pragma once

#include <math.h>

#include <memory>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/scalar/libm.h"

namespace gradloom::cuda {

// The number of elements that a thread loads before it computes. With one 16-bit load in flight per thread, memory bandwidth is not
// saturated.
template <typename T>
inline constexpr int kAtOnce = kIsHalf<T> ? 2 : 1;

// Operands in memory order, whatever their common layout.
inline KernelCall InMemoryOrder(const KernelCall& call) { return PhysicalOf(call)->call; }

// Defined in elementwise_binary.cu.
std::unique_ptr<Kernel> MakeBinary(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeComparison(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakePow(const KernelCall& call, const KernelSite& site);

// Defined in elementwise_many.cu.
std::unique_ptr<Kernel> MakeCast(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeClip(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeFold(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeWhere(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda

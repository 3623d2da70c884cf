// The parts of the family of pointwise operators.
#pragma once

#include <math.h>

#include <memory>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/walk.cuh"

namespace gradloom::cuda {

// Elements that a thread loads before it computes: with one of 16 bits under way a thread, memory would wait for threads.
template <typename T>
inline constexpr int kAtOnce = kIsHalf<T> ? 2 : 1;

// Operands in the order in which they lie in memory, whatever the layout that they share.
inline KernelCall InMemoryOrder(const KernelCall& call) { return PhysicalOf(call)->call; }

// No overflow for any x.
template <typename A>
GRADLOOM_DEVICE A Sigmoid(A x) {
  const A e = exp(-fabs(x));
  return (x < 0 ? e : A{1}) / (1 + e);
}

// elementwise_binary.cu
std::unique_ptr<Kernel> MakeBinary(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeComparison(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakePow(const KernelCall& call, const KernelSite& site);

// elementwise_many.cu
std::unique_ptr<Kernel> MakeCast(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeClip(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeFold(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeWhere(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda

// A matrix product within a kernel, prepared once.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/rows/blas.h"

namespace gradloom::cuda {

// Uses the library, or Gradloom's own kernel where the library has no algorithm, which adds a note to the device's notes. No epilogues, no
// float64.
class PreparedProduct {
 public:
  // Prepares nothing if m is 0. Throws Error(kDevice) if the library fails.
  PreparedProduct(const BlasProduct& product, const KernelCall& call, const KernelSite& site);

  // Enqueues the product. If the product has an addend, it is `d`. `workspace` has BlasScratchBytes(product) bytes.
  void Run(const void* a, const void* b, void* d, void* workspace, CUstream_st* stream) const;

 private:
  BlasProduct product_;
  std::unique_ptr<LtProduct> library_;
};

}  // namespace gradloom::cuda

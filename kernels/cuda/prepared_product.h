// A product within a kernel, prepared once.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/rows/blas.h"

namespace gradloom::cuda {

// By the library, or by a kernel of ours where that has nothing; the device's notes say so then. Without epilogues, and not of float64.
class PreparedProduct {
 public:
  // Nothing where m is 0. Throws Error(kDevice) where the library fails.
  PreparedProduct(const BlasProduct& product, const KernelCall& call, const KernelSite& site);

  // Enqueues it: `d` is the addend, too, where there is one. `workspace`: BlasScratchBytes(product) bytes.
  void Run(const void* a, const void* b, void* d, void* workspace, CUstream_st* stream) const;

 private:
  BlasProduct product_;
  std::unique_ptr<LtProduct> library_;
};

}  // namespace gradloom::cuda

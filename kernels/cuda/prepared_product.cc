#include "kernels/cuda/prepared_product.h"

#include "kernels/cuda/libraries.h"
#include "kernels/cuda/plain_product.h"

namespace gradloom::cuda {

PreparedProduct::PreparedProduct(const BlasProduct& product, const KernelCall& call, const KernelSite& site) : product_(product) {
  if (product.m == 0) return;
  library_ = std::make_unique<LtProduct>(product, *site.libraries);
  if (library_->has_algorithm()) return;
  library_ = nullptr;
  site.libraries->Note("cuBLASLt has nothing for a product of a " + call.op + " of " + call.inputs[0].shape.ToString() +
                       ", a kernel of ours runs: it knows no algorithm for the product");
}

void PreparedProduct::Run(const void* a, const void* b, void* d, void* workspace, CUstream_st* stream) const {
  if (library_ == nullptr) return PlainProduct(product_, a, b, d, stream);
  const void* const inputs[] = {a, b, d};
  void* const outputs[] = {d};
  library_->Run(inputs, outputs, workspace, stream);
}

}  // namespace gradloom::cuda

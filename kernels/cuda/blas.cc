// Matrix products by cuBLASLt, with separate passes for epilogues that it does not support.
#include "kernels/cuda/rows/blas.h"

#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/fallback_kernel.h"
#include "kernels/cuda/gelu_passes.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom::cuda {
namespace {

using Epilogue = BlasProduct::Epilogue;

// Why the library is not used for the epilogue of a product, or "".
std::string EpilogueRejection(const BlasProduct& product) {
  if (product.epilogue == Epilogue::kNone) return "";
  if (product.dtype == DType::kFloat64) return "it states no epilogues of float64";
  if (product.epilogue != Epilogue::kGelu && product.epilogue != Epilogue::kGeluGrad) return "";
  // The library does not document the accuracy of its tanh; the hardware's approximation has 11 bits.
  if (product.dtype == DType::kFloat32) return "its GELU is not known to have 24 bits";
  return product.n % 8 == 0 ? "" : "rows of GELU's operand have to have a multiple of 8 elements";
}

class BlasKernel : public Kernel {
 public:
  BlasKernel(const BlasProduct& product, Libraries& libraries) : product_(product, libraries) {}
  bool has_algorithm() const { return product_.has_algorithm(); }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    product_.Run(inputs, outputs, scratch, static_cast<CUstream_st*>(stream));
  }

 private:
  LtProduct product_;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  auto kernel = std::make_unique<BlasKernel>(*BlasProductOf(call), *site.libraries);
  if (kernel->has_algorithm()) return kernel;
  return MakeFallbackKernel("cuBLASLt", ProductKernels(), call, site, "it knows no algorithm for the product");
}

// A product, and separate kernels that do what its epilogue would.
class ProductAndPasses : public Kernel {
 public:
  ProductAndPasses(const KernelCall& call, const KernelSite& site) : product_(*BlasProductOf(call)), output_(call.outputs[0]) {
    KernelCall plain = call;
    plain.op = "Gemm";
    plain.domain = "";
    plain.inputs.resize(product_.addend == BlasProduct::Addend::kRow ? 3 : 2);
    plain.outputs.resize(1);
    plain_ = Make(plain, site);
    if (call.outputs.size() < 2 || !call.outputs[1].present() || product_.epilogue == Epilogue::kGelu) return;
    Tensor axes;
    const KernelCall sums = SumsOf(call, axes);
    for (const KernelRow& row : CudaReduceRows()) {
      if (row.op == sums.op) sums_ = MakeCudaKernel(row, sums, site);
    }
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    const bool gelu = product_.epilogue == Epilogue::kGelu;
    void* const made[] = {outputs[gelu ? 1 : 0]};
    plain_->Run(inputs, made, scratch, stream);
    const int64_t n = output_.shape.elements();
    const auto on = static_cast<cudaStream_t>(stream);
    if (product_.epilogue == Epilogue::kRelu) ReluInPlace(output_.dtype, n, outputs[0], on);
    if (gelu) GeluPass(output_.dtype, n, outputs[1], outputs[0], on);
    if (product_.epilogue == Epilogue::kGeluGrad) GeluGradInPlace(output_.dtype, n, inputs[2], outputs[0], on);
    if (sums_ == nullptr) return;
    const void* const summed[] = {product_.epilogue == Epilogue::kSumsOfA   ? inputs[0]
                                  : product_.epilogue == Epilogue::kSumsOfB ? inputs[1]
                                                                            : outputs[0],
                                  nullptr};
    sums_->Run(summed, outputs + 1, scratch, stream);
  }

 private:
  BlasProduct product_;
  OperandType output_;
  std::unique_ptr<Kernel> plain_, sums_;
};

std::unique_ptr<Kernel> MakeWithEpilogue(const KernelCall& call, const KernelSite& site) {
  std::string why = EpilogueRejection(*BlasProductOf(call));
  if (why.empty()) {
    auto kernel = std::make_unique<BlasKernel>(*BlasProductOf(call), *site.libraries);
    if (kernel->has_algorithm()) return kernel;
    why = "it knows no algorithm with the epilogue";
  }
  site.libraries->Note("cuBLASLt has nothing for a " + call.op + " of " + call.inputs[0].shape.ToString() +
                       ", a product and passes of ours over its result run: " + why);
  return std::make_unique<ProductAndPasses>(call, site);
}

constexpr CudaKernel kKernels[] = {{"cublas.MatMul", Make},
                                   {"cublas.Gemm", Make},
                                   {"cublas.gradloom.GemmRelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGeluGrad", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmBiasGrad", MakeWithEpilogue}};

}  // namespace

std::span<const CudaKernel> BlasKernels() { return kKernels; }

}  // namespace gradloom::cuda

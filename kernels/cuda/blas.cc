// Matrix products by cuBLASLt, with separate passes for epilogues that it does not support.
#include "kernels/cuda/rows/blas.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/fallback_kernel.h"
#include "kernels/cuda/gelu_passes.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/plain_product.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom::cuda {
namespace {

using Epilogue = BlasProduct::Epilogue;

// Why the library is not used for the epilogue of a product, or "".
std::string EpilogueRejection(const BlasProduct& product) {
  if (product.epilogue == Epilogue::kNone) return "";
  if (product.dtype == DType::kFloat64) return "it states no epilogues of float64";
  if (product.epilogue != Epilogue::kGelu) return "";
  // The library does not document the accuracy of its tanh; the hardware's approximation has 11 bits.
  if (product.dtype == DType::kFloat32) return "its GELU is not known to have 24 bits";
  return product.n % 8 == 0 ? "" : "rows of GELU's operand have to have a multiple of 8 elements";
}

class BlasKernel : public Kernel {
 public:
  BlasKernel(const BlasProduct& product, Libraries& libraries) : product_(product), parts_(AlignedParts(product)) {
    for (const ProductPart& part : parts_) library_.push_back(std::make_unique<LtProduct>(part.product, libraries));
  }
  bool has_algorithm() const {
    return std::all_of(library_.begin(), library_.end(), [](const auto& part) { return part->has_algorithm(); });
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    if (library_.size() == 1) {
      library_.front()->Run(inputs, outputs, scratch, on);
    } else {
      const int64_t bytes = DTypeBytes(product_.dtype);
      for (size_t i = 0; i < parts_.size(); ++i) {
        const ProductPart& part = parts_[i];
        char* const d = static_cast<char*>(outputs[0]) + part.d * bytes;
        const bool adds = part.product.addend == BlasProduct::Addend::kMatrix, row = part.product.addend == BlasProduct::Addend::kRow;
        const void* const of_part[] = {static_cast<const char*>(inputs[0]) + part.a * bytes,
                                       static_cast<const char*>(inputs[1]) + part.b * bytes,
                                       adds  ? d
                                       : row ? static_cast<const char*>(inputs[2]) + part.row * bytes
                                             : nullptr};
        const bool gelu = part.product.epilogue == Epilogue::kGelu;
        void* const to[] = {d, gelu ? static_cast<char*>(outputs[1]) + part.d * bytes : nullptr};
        library_[i]->Run(of_part, to, scratch, on);
      }
    }
    ZeroRowPadding(product_, outputs[0], on);
    if (product_.epilogue == Epilogue::kGelu) ZeroRowPadding(product_, outputs[1], on);
  }

 private:
  BlasProduct product_;
  std::vector<ProductPart> parts_;
  std::vector<std::unique_ptr<LtProduct>> library_;
};

// Gradloom's product of matrices with padded rows.
class PaddedProduct : public Kernel {
 public:
  explicit PaddedProduct(const BlasProduct& product) : product_(product) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    // A matrix that is added has to be where the result goes. Then the result has no padding, so both have the same size.
    if (product_.addend == BlasProduct::Addend::kMatrix && inputs[2] != outputs[0]) {
      const int64_t bytes = product_.batch * product_.m * product_.n * DTypeBytes(product_.result);
      GRADLOOM_CUDA(cudaMemcpyAsync(outputs[0], inputs[2], static_cast<size_t>(bytes), cudaMemcpyDefault, on));
    }
    PlainProduct(product_, inputs[0], inputs[1], outputs[0], on, product_.addend == BlasProduct::Addend::kRow ? inputs[2] : nullptr);
    ZeroRowPadding(product_, outputs[0], on);
  }

 private:
  BlasProduct product_;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const BlasProduct product = *BlasProductOf(call);
  auto kernel = std::make_unique<BlasKernel>(product, *site.libraries);
  if (kernel->has_algorithm()) return kernel;
  const std::string why = "it knows no algorithm for the product";
  if (product.has_padded_rows()) {
    site.libraries->Note("cuBLASLt has nothing for a " + call.op + " of " + call.inputs[0].shape.ToString() +
                         ", a kernel of ours runs: " + why);
    return std::make_unique<PaddedProduct>(product);
  }
  return MakeFallbackKernel("cuBLASLt", ProductKernels(), call, site, why);
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
    if (!product_.sums || product_.epilogue == Epilogue::kGeluGrad) return;
    Tensor axes;
    const KernelCall sums = SumsOf(call, axes);
    for (const KernelRow& row : CudaReduceRows()) {
      if (row.op == sums.op) sums_ = MakeCudaKernel(row, sums, site);
    }
    padded_sums_bytes_ = PaddedSumsBytes(call, sums);
    sums_bytes_ = call.outputs[1].bytes();
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    const bool gelu = product_.epilogue == Epilogue::kGelu;
    void* const made[] = {outputs[gelu ? 1 : 0]};
    plain_->Run(inputs, made, scratch, stream);
    // Both functions keep the zeros of padding.
    const int64_t n = output_.layout.elements(output_.shape);
    const auto on = static_cast<cudaStream_t>(stream);
    if (product_.epilogue == Epilogue::kRelu) ReluInPlace(output_.dtype, n, outputs[0], on);
    if (gelu) GeluPass(output_.dtype, n, outputs[1], outputs[0], on);
    if (product_.epilogue == Epilogue::kGeluGrad)
      GeluGradInPlace(output_.dtype, {product_.m, product_.n}, inputs[2], outputs[0], scratch, product_.sums ? outputs[1] : nullptr, on);
    if (sums_ == nullptr) return;
    const void* const summed[] = {inputs[product_.epilogue == Epilogue::kSumsOfA ? 0 : 1], nullptr};
    if (padded_sums_bytes_ == 0) return sums_->Run(summed, outputs + 1, scratch, stream);
    void* const padded[] = {scratch};
    sums_->Run(summed, padded, static_cast<char*>(scratch) + padded_sums_bytes_, stream);
    GRADLOOM_CUDA(cudaMemcpyAsync(outputs[1], scratch, static_cast<size_t>(sums_bytes_), cudaMemcpyDefault, on));
  }

 private:
  BlasProduct product_;
  OperandType output_;
  std::unique_ptr<Kernel> plain_, sums_;
  int64_t padded_sums_bytes_ = 0, sums_bytes_ = 0;
};

std::unique_ptr<Kernel> MakeWithEpilogue(const KernelCall& call, const KernelSite& site) {
  BlasProduct plain = *BlasProductOf(call);
  const bool sums = plain.epilogue == Epilogue::kSumsOfA || plain.epilogue == Epilogue::kSumsOfB;
  plain.epilogue = Epilogue::kNone;
  // A divided product is so much faster that it is worth another pass over the operand.
  if (sums && AlignedParts(plain).size() > 1) return std::make_unique<ProductAndPasses>(call, site);
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

// On an H200, the library's epilogue takes four times as long as the product of GPT-2's layer, and this pass less than the product.
std::unique_ptr<Kernel> MakeGeluGrad(const KernelCall& call, const KernelSite& site) {
  return std::make_unique<ProductAndPasses>(call, site);
}

constexpr CudaKernel kKernels[] = {{"cublas.MatMul", Make},
                                   {"cublas.Gemm", Make},
                                   {"cublas.gradloom.GemmRelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGelu", MakeWithEpilogue},
                                   {"cublas.gradloom.GemmGeluGrad", MakeGeluGrad},
                                   {"cublas.gradloom.GemmBiasGrad", MakeWithEpilogue}};

}  // namespace

std::span<const CudaKernel> BlasKernels() { return kKernels; }

}  // namespace gradloom::cuda

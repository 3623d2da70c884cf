#include "kernels/cuda/fallback_kernel.h"

#include "kernels/cuda/libraries.h"
#include "runtime/base/error.h"

namespace gradloom::cuda {
namespace {

// cuDNN reports a page of reasons, the most important first.
constexpr size_t kMaxReasonChars = 600;

}  // namespace

std::unique_ptr<Kernel> MakeFallbackKernel(const std::string& library, std::span<const CudaKernel> kernels, const KernelCall& call,
                                           const KernelSite& site, const std::string& why) {
  const std::string row = "cuda." + (call.domain.empty() ? call.op : call.domain + "." + call.op);
  for (const CudaKernel& kernel : kernels) {
    if (kernel.row != row) continue;
    site.libraries->Note(library + " has nothing for a " + call.op + " of " + call.inputs[0].shape.ToString() + ", " + row +
                         " runs: " + why.substr(0, kMaxReasonChars));
    return kernel.make(call, site);
  }
  throw Error(ErrorCode::kInternal, "there is no kernel " + row);
}

}  // namespace gradloom::cuda

// Attention by cuDNN; where it has no algorithm for a call, by the kernel of ours that serves the same call.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/dnn_stand_in.h"
#include "kernels/cuda/rows/attention.h"

namespace gradloom::cuda {
namespace {

class DnnAttentionKernel : public Kernel {
 public:
  explicit DnnAttentionKernel(std::unique_ptr<DnnPlan> plan) : plan_(std::move(plan)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    const std::array<const void*, 4> addresses{inputs[0], inputs[1], inputs[2], outputs[0]};
    plan_->Run(addresses, scratch, static_cast<CUstream_st*>(stream));
  }

 private:
  std::unique_ptr<DnnPlan> plan_;
};

// The forward phase once more, then the gradients.
class DnnAttentionGradKernel : public Kernel {
 public:
  DnnAttentionGradKernel(const KernelCall& call, const DnnAttentionScratch& scratch, std::unique_ptr<DnnPlan> forward,
                         std::unique_ptr<DnnPlan> backward)
      : scratch_(scratch), wanted_(call.attributes.Ints("wanted")), forward_(std::move(forward)), backward_(std::move(backward)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    auto* const bytes = static_cast<char*>(scratch);
    void *const o = bytes + scratch_.o, *const sums = bytes + scratch_.sums, *const library = bytes + scratch_.library;
    const std::array<const void*, 5> forward{inputs[0], inputs[1], inputs[2], o, sums};
    forward_->Run(forward, library, on);

    std::array<void*, 3> gradients;
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = scratch_.gradients[i] < 0 ? nullptr : bytes + scratch_.gradients[i];
    for (size_t k = 0; k < wanted_.size(); ++k) gradients[static_cast<size_t>(wanted_[k])] = outputs[k];
    const void* const dy = inputs[7];
    const std::array<const void*, 9> backward{inputs[0], inputs[1], inputs[2], o, dy, sums, gradients[0], gradients[1], gradients[2]};
    backward_->Run(backward, library, on);
  }

 private:
  DnnAttentionScratch scratch_;
  std::vector<int64_t> wanted_;
  std::unique_ptr<DnnPlan> forward_, backward_;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const DnnAttention attention = *DnnAttentionOf(call);
  const DnnAttentionScratch scratch = DnnAttentionScratchOf(call, attention);
  const bool gradient = call.op == "AttentionGrad";
  std::string why;
  auto forward = PlanDnnAttention(attention, gradient, scratch.library_bytes, *site.libraries, why);
  if (forward != nullptr && !gradient) return std::make_unique<DnnAttentionKernel>(std::move(forward));
  if (forward != nullptr) {
    auto backward = PlanDnnAttentionGradient(attention, scratch.library_bytes, *site.libraries, why);
    if (backward != nullptr) return std::make_unique<DnnAttentionGradKernel>(call, scratch, std::move(forward), std::move(backward));
  }
  return StandInForDnn(AttentionKernels(), call, site, why);
}

constexpr CudaKernel kKernels[] = {{"cudnn.Attention", Make}, {"cudnn.gradloom.AttentionGrad", Make}};

}  // namespace

std::span<const CudaKernel> DnnAttentionKernels() { return kKernels; }

}  // namespace gradloom::cuda

// Convolutions by cuDNN, or by Gradloom's own kernel for the same call if cuDNN has no algorithm.
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/channel_bias.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/fallback_kernel.h"

namespace gradloom::cuda {
namespace {

using Direction = DnnConvolution::Direction;

class DnnConvolutionKernel : public Kernel {
 public:
  DnnConvolutionKernel(const KernelCall& call, Direction direction, std::unique_ptr<DnnPlan> plan)
      : plan_(std::move(plan)), direction_(direction), dtype_(call.outputs[0].dtype) {
    const OperandType& out = call.outputs[0];
    has_bias_ = call.domain.empty() && call.inputs.size() > 2 && call.inputs[2].present();
    elements_ = out.shape.elements(), channels_ = out.shape[1];
    points_ = SameMemoryOrder(out.layout, {}, out.shape) ? elements_ / (out.shape[0] * channels_) : 1;
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override {
    auto* const on = static_cast<CUstream_st*>(stream);
    std::array<const void*, 3> addresses;  // of x, w, y
    switch (direction_) {
      case Direction::kForward: addresses = {inputs[0], inputs[1], outputs[0]}; break;
      case Direction::kGradInput: addresses = {outputs[0], inputs[1], inputs[0]}; break;
      case Direction::kGradWeight: addresses = {inputs[0], outputs[0], inputs[1]}; break;
    }
    plan_->Run(addresses, scratch, on);
    if (has_bias_) AddChannelBias(dtype_, inputs[2], channels_, points_, elements_, outputs[0], on);
  }

 private:
  std::unique_ptr<DnnPlan> plan_;
  Direction direction_;
  DType dtype_;
  bool has_bias_;
  int64_t elements_, channels_, points_;
};

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  const DnnConvolution convolution = *DnnConvolutionOf(call);
  std::string why;
  auto plan = PlanDnnConvolution(convolution, DnnScratchBytes(convolution), *site.libraries, why);
  if (plan == nullptr) return MakeFallbackKernel("cuDNN", ConvolutionKernels(), call, site, why);
  return std::make_unique<DnnConvolutionKernel>(call, convolution.direction, std::move(plan));
}

constexpr CudaKernel kKernels[] = {
    {"cudnn.Conv", Make},
    {"cudnn.ConvTranspose", Make},
    {"cudnn.gradloom.ConvGradInput", Make},
    {"cudnn.gradloom.ConvGradWeight", Make},
};

}  // namespace

std::span<const CudaKernel> DnnConvKernels() { return kKernels; }

}  // namespace gradloom::cuda

// Resize and its gradient.
#include <string>
#include <vector>

#include "kernels/cpu/convolution/separable.h"
#include "kernels/cpu/families.h"

namespace gradloom {
namespace {

class Resize : public SeparableKernel {
 public:
  explicit Resize(const KernelCall& call) : SeparableKernel(call, false) {}

 private:
  std::vector<AxisMap> Maps(const void* const* inputs) const override {
    return ResizeMaps(call(), inputs, call().inputs[0].shape, call().outputs[0].shape);
  }
};

class ResizeGrad : public SeparableKernel {
 public:
  explicit ResizeGrad(const KernelCall& call) : SeparableKernel(call, true) {}

 private:
  std::vector<AxisMap> Maps(const void* const* inputs) const override {
    return ResizeMaps(call(), inputs, call().outputs[0].shape, call().inputs[0].shape);
  }
};

std::string Rejects(const KernelCall& call) {
  if (call.inputs.size() > 4) return "an unexpected number of operands";
  if (call.attributes.String("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize") return "extrapolation";
  return SeparableKernel::Rejects(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Resize", .op = "Resize", .domain = "", .rejects = Rejects, .scratch_bytes = SeparableKernel::Scratch},
     .make = MakeKernel<Resize>},
    {.row = {.name = "cpu.ResizeGrad",
             .op = "ResizeGrad",
             .domain = "gradloom",
             .rejects = Rejects,
             .scratch_bytes = SeparableKernel::Scratch},
     .make = MakeKernel<ResizeGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuResizeKernels() { return kKernels; }

}  // namespace gradloom

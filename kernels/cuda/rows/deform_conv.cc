// Deformable convolutions of images.
#include "kernels/cuda/rows/deform_conv.h"

#include <algorithm>

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call)}); !why.empty()) return why;
  const Shape &x = call.inputs[kDeformX].shape, &w = call.inputs[kDeformW].shape;
  if (x.rank() != 4 || w.rank() != 4 || DeformOutputShape(call).rank() != 4) return "other than planes";
  for (const OperandType& input : call.inputs) {
    if (input.present() && input.dtype != call.inputs[kDeformX].dtype) return "operands of several types";
  }
  return DeformFits(call) ? "" : "operands that do not fit each other";
}

int64_t GradientBytes(const KernelCall& call) { return DeformScratch(call).bytes(); }

constexpr KernelRow kRows[] = {
    {.name = "cuda.DeformConv", .op = "DeformConv", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects},
    {.name = "cuda.gradloom.DeformConvGrad",
     .op = "DeformConvGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects,
     .scratch_bytes = GradientBytes},
};

}  // namespace

cuda_rows::DeformScratch::DeformScratch(const KernelCall& call) {
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  const auto is_wanted = [&](int64_t input) { return std::find(wanted.begin(), wanted.end(), input) != wanted.end(); };
  const DeformSizes s(call);
  const int64_t bytes = std::max<int64_t>(DTypeBytes(call.inputs[kDeformX].dtype), 4);
  sums = is_wanted(kDeformX);
  samples = sums || is_wanted(kDeformOffset) || is_wanted(kDeformMask);
  // The sums have 8 bytes each and must be aligned to 8 bytes.
  if (samples) sample_bytes = (s.planes() * s.taps() * s.points() * bytes + 7) / 8 * 8;
  if (sums) sum_bytes = s.planes() * s.pixels() * (bytes == 8 ? 16 : 8), unit_bytes = s.planes() * 8;
}

std::span<const KernelRow> CudaDeformConvRows() { return kRows; }

}  // namespace gradloom

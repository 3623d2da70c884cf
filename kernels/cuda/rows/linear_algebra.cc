// Determinants.
#include "kernels/cuda/rows/determinants.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) {
  if (call.inputs[0].shape.rank() < 2) return "rank below 2";
  return FirstOf({Layouts(call), NotFloating(call)});
}

int64_t Scratch(const KernelCall& call) { return cuda::Determinants::Of(call).bytes(); }

constexpr KernelRow kRows[] = {
    {.name = "cuda.Det", .op = "Det", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Scratch},
    {.name = "cuda.gradloom.DetGrad",
     .op = "DetGrad",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = Rejects,
     .scratch_bytes = Scratch},
};

}  // namespace

std::span<const KernelRow> CudaLinearAlgebraRows() { return kRows; }

}  // namespace gradloom

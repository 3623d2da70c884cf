// Convolutions without a library, in every direction: behind those that have one.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

std::string Rejects(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "rank " + std::to_string(rank);
  return FirstOf({Layouts(call), NotFloating(call)});
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Conv", "Conv", ""),
    Row("cuda.ConvTranspose", "ConvTranspose", ""),
    Row("cuda.gradloom.ConvGradInput", "ConvGradInput", "gradloom"),
    Row("cuda.gradloom.ConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::span<const KernelRow> CudaConvolutionRows() { return kRows; }

}  // namespace gradloom

// Moves of elements: nothing is computed.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

std::string RejectsAny(const KernelCall& call) { return FirstOf({Layouts(call), RankAbove(call, 8)}); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain, std::string (*rejects)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = rejects};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Transpose", "Transpose", "", RejectsAny),
};

}  // namespace

std::span<const KernelRow> CudaMoveRows() { return kRows; }

}  // namespace gradloom

// Softmax and related operators along an axis.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string Rejects(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  const bool outside = rank > 0 && !NormalAxis(call.attributes.Int("axis", -1), rank);
  return FirstOf({Layouts(call), NotFloating(call), outside ? "axis out of range" : ""});
}

// Each element is overwritten only by the thread that alone reads it.
constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow Row(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .may_alias = kInPlace};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Softmax", "Softmax"),
    Row("cuda.LogSoftmax", "LogSoftmax"),
    Row("cuda.Hardmax", "Hardmax"),
    Row("cuda.LpNormalization", "LpNormalization"),
};

}  // namespace

std::span<const KernelRow> CudaSoftmaxRows() { return kRows; }

}  // namespace gradloom

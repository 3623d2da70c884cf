// Pooling and its gradients.
#include <limits>

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

std::string NotVolumes(const KernelCall& call) {
  const int rank = call.inputs[0].shape.rank();
  return rank < 3 || rank > 5 ? "rank " + std::to_string(rank) : "";
}

// Row-major, or channels-last, which is what 16-bit convolutions use.
std::string Orders(const KernelCall& call) { return ChannelOrders(call, call.inputs[0].shape.rank()); }

std::string Rejects(const KernelCall& call) { return FirstOf({Orders(call), NotFloating(call), NotVolumes(call)}); }

// One window per plane, for any rank.
std::string RejectsGlobal(const KernelCall& call) {
  if (call.inputs[0].shape.rank() < 2) return "rank below 2";
  return FirstOf({Orders(call), NotFloating(call)});
}

std::string RejectsMaxPool(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  if (!IsFloating(dtype) && !IsInteger(dtype)) return "elements of type " + std::string(DTypeName(dtype));
  return FirstOf({Orders(call), NotVolumes(call)});
}

// Points of a plane are numbered in 32 bits.
std::string RejectsMaxPoolGrad(const KernelCall& call) {
  const Shape& x = call.inputs[0].shape;
  const int64_t planes = x.rank() < 2 ? 0 : x[0] * x[1];
  if (planes > 0 && x.elements() / planes > std::numeric_limits<int32_t>::max()) return "planes of more than 2^31 points";
  return Rejects(call);
}

// The index of the maximum of each window, in at most 32 bits.
int64_t MaxPoolGradScratch(const KernelCall& call) { return call.inputs[1].shape.elements() * static_cast<int64_t>(sizeof(int32_t)); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain, std::string (*rejects)(const KernelCall&),
                        int64_t (*scratch_bytes)(const KernelCall&) = nullptr) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = scratch_bytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.MaxPool", "MaxPool", "", RejectsMaxPool),
    Row("cuda.gradloom.MaxPoolGrad", "MaxPoolGrad", "gradloom", RejectsMaxPoolGrad, MaxPoolGradScratch),
    Row("cuda.AveragePool", "AveragePool", "", Rejects),
    Row("cuda.gradloom.AveragePoolGrad", "AveragePoolGrad", "gradloom", Rejects),
    Row("cuda.LpPool", "LpPool", "", Rejects),
    Row("cuda.gradloom.LpPoolGrad", "LpPoolGrad", "gradloom", Rejects),
    Row("cuda.GlobalAveragePool", "GlobalAveragePool", "", RejectsGlobal),
    Row("cuda.GlobalMaxPool", "GlobalMaxPool", "", RejectsGlobal),
    Row("cuda.GlobalLpPool", "GlobalLpPool", "", RejectsGlobal),
};

}  // namespace

std::span<const KernelRow> CudaPoolingRows() { return kRows; }

}  // namespace gradloom

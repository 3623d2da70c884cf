// Pooling over regions of interest, which are boxes over images.
#include "kernels/cuda/rows/regions.h"

#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

bool IsGradient(const KernelCall& call) { return call.domain == "gradloom"; }

const OperandType& Pooled(const KernelCall& call) { return IsGradient(call) ? call.inputs.back() : call.outputs[0]; }

std::string Rejects(const KernelCall& call, int64_t box_numbers) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call), NotFloating(call, 1)}); !why.empty()) return why;
  if (call.inputs[0].shape.rank() != 4 || Pooled(call).shape.rank() != 4) return "rank";
  return call.inputs[1].shape == Shape{Pooled(call).shape[0], box_numbers} ? "" : "boxes that do not fit the output";
}

std::string RejectsMaxRoiPool(const KernelCall& call) { return Rejects(call, 5); }

std::string RejectsRoiAlign(const KernelCall& call) {
  if (std::string why = Rejects(call, 4); !why.empty()) return why;
  const OperandType& images = call.inputs[2];
  if (images.dtype != DType::kInt64 && images.dtype != DType::kInt32) return "images of type " + std::string(DTypeName(images.dtype));
  if (images.shape.elements() != Pooled(call).shape[0]) return "not one image index for each box";
  constexpr int64_t kMaxPoints = 4096;  // per bin and axis
  return call.attributes.Int("sampling_ratio", 0) <= kMaxPoints ? "" : "a sampling ratio above 4096";
}

int64_t Bytes(const KernelCall& call) { return RegionSizes(call).bytes(); }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain, std::string (*rejects)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = Bytes};
}

constexpr KernelRow kRows[] = {
    Row("cuda.MaxRoiPool", "MaxRoiPool", "", RejectsMaxRoiPool),
    Row("cuda.RoiAlign", "RoiAlign", "", RejectsRoiAlign),
    Row("cuda.gradloom.MaxRoiPoolGrad", "MaxRoiPoolGrad", "gradloom", RejectsMaxRoiPool),
    Row("cuda.gradloom.RoiAlignGrad", "RoiAlignGrad", "gradloom", RejectsRoiAlign),
};

}  // namespace

cuda_rows::RegionSizes::RegionSizes(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = Pooled(call).shape;
  images = x[0], channels = x[1], height = x[2], width = x[3];
  count = y[0], bins_y = y[2], bins_x = y[3];
  const bool largest = call.op.starts_with("MaxRoiPool") || call.attributes.String("mode", "avg") == "max";
  keeps_max_pixels = IsGradient(call) && largest;
}

std::span<const KernelRow> CudaRegionRows() { return kRows; }

}  // namespace gradloom

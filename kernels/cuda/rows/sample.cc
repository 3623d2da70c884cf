// Resize, GridSample and their gradients.
#include "kernels/catalog/operands.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/sample_scratch.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

bool HasElements(const KernelCall& call, size_t i) { return HasInput(call, i) && call.inputs[i].shape.elements() > 0; }

std::string RejectsResize(const KernelCall& call) {
  const std::string common = FirstOf({Layouts(call), RankAbove(call, kMaxAxes)});
  if (!common.empty()) return common;
  // The sizes are needed, in addition to the shapes, if they determine a common scale for all axes.
  const bool one_scale = !HasElements(call, 2) && call.attributes.String("keep_aspect_ratio_policy", "stretch") != "stretch";
  return one_scale ? Unknown(call, {3}) : "";
}

std::string RejectsResizeGrad(const KernelCall& call) { return FirstOf({RejectsResize(call), NotFloating(call)}); }

int64_t ResizeScratch(const KernelCall& call) {
  int64_t bytes = 0;
  for (int64_t extent : call.outputs[0].shape) bytes += extent * kResizeEntryBytes;
  return bytes;
}

// Input 0 is the gradient of Y.
int64_t ResizeGradScratch(const KernelCall& call) {
  int64_t bytes = 0;
  for (int64_t extent : call.inputs[0].shape) bytes += extent * kResizeEntryBytes;
  for (int64_t extent : call.outputs[0].shape) bytes += extent * kResizeRangeBytes;
  return bytes;
}

std::string RejectsGridSample(const KernelCall& call) {
  return FirstOf({Layouts(call), RankAbove(call, 5), NotFloating(call, 0), NotFloating(call, 1)});
}

std::string RejectsGridSampleGrad(const KernelCall& call) {
  const std::string common = RejectsGridSample(call);
  if (!common.empty()) return common;
  return call.inputs[0].dtype == call.inputs[1].dtype ? "" : "X and a grid of two types";
}

int64_t GridSampleGradScratch(const KernelCall& call) { return GridSampleScratch(call.inputs[0]).bytes; }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain, std::string (*rejects)(const KernelCall&),
                        int64_t (*scratch)(const KernelCall&)) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = rejects, .scratch_bytes = scratch};
}

constexpr KernelRow kRows[] = {
    Row("cuda.Resize", "Resize", "", RejectsResize, ResizeScratch),
    Row("cuda.gradloom.ResizeGrad", "ResizeGrad", "gradloom", RejectsResizeGrad, ResizeGradScratch),
    Row("cuda.GridSample", "GridSample", "", RejectsGridSample, nullptr),
    Row("cuda.gradloom.GridSampleGrad", "GridSampleGrad", "gradloom", RejectsGridSampleGrad, GridSampleGradScratch),
};

}  // namespace

std::span<const KernelRow> CudaSampleRows() { return kRows; }

}  // namespace gradloom

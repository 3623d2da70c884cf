// Of ai.onnx.ml, what works on tensors of numbers one by one.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: the reasons below are its

std::string RejectsBinarizer(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  if (!IsFloating(dtype) && !IsInteger(dtype)) return "elements of type " + std::string(DTypeName(dtype));
  return call.outputs[0].dtype == dtype ? Layouts(call) : "a result of another type";
}

std::string RejectsExtractor(const KernelCall& call) {
  const DType dtype = call.inputs[1].dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) return "columns of type " + std::string(DTypeName(dtype));
  return call.inputs[0].shape.rank() > 0 ? Layouts(call) : "a scalar";
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.ml.ArrayFeatureExtractor",
     .op = "ArrayFeatureExtractor",
     .domain = "ai.onnx.ml",
     .device = DeviceKind::kCuda,
     .rejects = RejectsExtractor},
    {.name = "cuda.ml.Binarizer",
     .op = "Binarizer",
     .domain = "ai.onnx.ml",
     .device = DeviceKind::kCuda,
     .rejects = RejectsBinarizer,
     .may_alias = kInPlace},
};

}  // namespace

std::span<const KernelRow> CudaTraditionalRows() { return kRows; }

}  // namespace gradloom

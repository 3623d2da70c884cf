// Numeric operators of ai.onnx.ml and of the text operators.
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

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

std::string RejectsTrees(const KernelCall& call) {
  const OperandType &x = call.inputs[0], &y = call.outputs[0];
  if (x.shape.rank() != 2 || y.shape.rank() != 2) return "rank";
  return FirstOf({Layouts(call), NotFloating(call), x.dtype == y.dtype ? "" : "a result of another type"});
}

// The totals of all samples.
int64_t TreeBytes(const KernelCall& call) { return call.outputs[0].shape.elements() * 8; }

std::string RejectsGrams(const KernelCall& call) {
  if (!IsInteger(call.inputs[0].dtype)) return "elements of type " + std::string(DTypeName(call.inputs[0].dtype));
  return call.outputs[0].dtype == DType::kFloat32 && call.outputs[0].shape.rank() > 0 ? Layouts(call) : "a result other than float32";
}

constexpr Aliasing kInPlace[] = {{0, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.TfIdfVectorizer", .op = "TfIdfVectorizer", .domain = "", .device = DeviceKind::kCuda, .rejects = RejectsGrams},
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
    {.name = "cuda.ml.TreeEnsemble",
     .op = "TreeEnsemble",
     .domain = "ai.onnx.ml",
     .device = DeviceKind::kCuda,
     .rejects = RejectsTrees,
     .scratch_bytes = TreeBytes},
};

}  // namespace

std::span<const KernelRow> CudaTraditionalRows() { return kRows; }

}  // namespace gradloom

// The optimizers of ai.onnx.preview.training.
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/scratch.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// (R, T, X..., G..., states...) -> (X..., states...), all except T of one type.
template <size_t kStates>
std::string Rejects(const KernelCall& call) {
  if (call.inputs.size() < 2 + 2 + kStates || (call.inputs.size() - 2) % (2 + kStates) != 0) return "an unexpected number of operands";
  const size_t count = (call.inputs.size() - 2) / (2 + kStates);
  if (call.outputs.size() > count * (1 + kStates)) return "an unexpected number of results";
  const DType dtype = call.inputs[2].dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return std::string(DTypeName(dtype));
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    const OperandType& operand = call.inputs[i];
    if (!operand.present() || operand.dtype != dtype || operand.shape != call.inputs[2 + (i - 2) % count].shape)
      return "operands that differ";
  }
  if (call.inputs[1].dtype != DType::kInt64) return "a step of type " + std::string(DTypeName(call.inputs[1].dtype));
  return FirstOf({Layouts(call), NotFloating(call, 0)});
}

int64_t Scratch(const KernelCall&) { return kUpdateBytes; }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string (*rejects)(const KernelCall&)) {
  return {.name = name,
          .op = op,
          .domain = "ai.onnx.preview.training",
          .device = DeviceKind::kCuda,
          .rejects = rejects,
          .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cuda.ai.onnx.preview.training.Adagrad", "Adagrad", Rejects<1>),
    Row("cuda.ai.onnx.preview.training.Adam", "Adam", Rejects<2>),
    Row("cuda.ai.onnx.preview.training.Momentum", "Momentum", Rejects<1>),
};

}  // namespace

std::span<const KernelRow> CudaTrainingRows() { return kRows; }

}  // namespace gradloom

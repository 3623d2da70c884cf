// Optimizers. The next values may overwrite the current ones.
#include <array>

#include "kernels/catalog/update.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// The range of the number of states of each optimizer.
struct States {
  std::string_view op;
  size_t min_states, max_states;
};
constexpr States kStates[] = {{"Sgd", 0, 1},    {"Adam", 2, 3},          {"NAdam", 2, 2},        {"RAdam", 2, 2},
                              {"Lion", 1, 1},   {"RmsProp", 1, 3},       {"Adagrad", 1, 1},      {"Adadelta", 2, 2},
                              {"Adamax", 2, 2}, {"LambDirection", 2, 2}, {"MovingAverage", 0, 0}};

std::string WrongStates(const KernelCall& call) {
  const size_t states = StatesOf(call);
  for (const States& known : kStates) {
    if (known.op == call.op && states >= known.min_states && states <= known.max_states && call.inputs.size() == kUpdateStates + states)
      return "";
  }
  return "an unexpected number of optimizer states";
}

std::string NotFloat(const OperandType& operand) {
  return operand.dtype == DType::kFloat32 || operand.dtype == DType::kFloat64 ? "" : std::string(DTypeName(operand.dtype));
}

std::string RejectsUpdate(const KernelCall& call) {
  if (std::string why = WrongStates(call); !why.empty()) return why;
  return FirstOf({RejectsUnequalOperands(call), NotFloat(call.inputs[kUpdateParameter]), NotFloating(call, kUpdateLr)});
}

std::string RejectsLambApply(const KernelCall& call) {
  return FirstOf({Layouts(call), NotFloat(call.inputs[kLambParameter]), NotFloating(call, kLambLr)});
}

constexpr Aliasing kInPlace[] = {{0, kUpdateParameter}, {1, kUpdateStates}, {2, kUpdateStates + 1}, {3, kUpdateStates + 2}};
// The direction is not a next parameter, but may overwrite the gradient.
constexpr Aliasing kDirectionInPlace[] = {{0, kUpdateGradient}, {1, kUpdateStates}, {2, kUpdateStates + 1}};
constexpr Aliasing kApplyInPlace[] = {{0, kLambParameter}, {0, kLambDirection}};

// A MultiTensorUpdate of parameters with kNumStates states each.
template <size_t kNumStates>
std::string RejectsMultiTensor(const KernelCall& call) {
  const int tensors = TensorsOf(call);
  if (tensors < 1 || StatesOf(UpdateOf(call, 0)) != kNumStates) return "an unexpected number of tensors or of their states";
  for (int tensor = 0; tensor < tensors; ++tensor) {
    const KernelCall update = UpdateOf(call, tensor);
    if (update.op.starts_with("Lamb")) return "an optimizer whose step depends on norms";
    if (update.inputs[kUpdateParameter].dtype != call.inputs[kMultiTensorParameters].dtype) return "parameters of several types";
    if (std::string why = RejectsUpdate(update); !why.empty()) return why;
  }
  return "";
}

template <size_t kNumStates>
constexpr auto MultiTensorInPlace() {
  std::array<Aliasing, kMaxTensors*(1 + kNumStates)> pairs{};
  for (int tensor = 0; tensor < kMaxTensors; ++tensor) {
    for (int k = 0; k <= static_cast<int>(kNumStates); ++k) {
      const int each = 1 + static_cast<int>(kNumStates), parameter = kMultiTensorParameters + tensor * (1 + each);
      pairs[static_cast<size_t>(tensor * each + k)] = {tensor * each + k, k == 0 ? parameter : parameter + 1 + k};
    }
  }
  return pairs;
}
constexpr auto kInPlace0 = MultiTensorInPlace<0>();
constexpr auto kInPlace1 = MultiTensorInPlace<1>();
constexpr auto kInPlace2 = MultiTensorInPlace<2>();
constexpr auto kInPlace3 = MultiTensorInPlace<3>();

template <size_t kNumStates>
constexpr KernelRow MultiTensorRow(std::string_view name, std::span<const Aliasing> may_alias) {
  return {.name = name,
          .op = "MultiTensorUpdate",
          .domain = "gradloom",
          .device = DeviceKind::kCuda,
          .rejects = RejectsMultiTensor<kNumStates>,
          .may_alias = may_alias,
          .preserves_state_on_refusal = true};
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::span<const Aliasing> may_alias) {
  return {.name = name,
          .op = op,
          .domain = "gradloom",
          .device = DeviceKind::kCuda,
          .rejects = RejectsUpdate,
          .may_alias = may_alias,
          .preserves_state_on_refusal = true};
}

constexpr KernelRow kRows[] = {
    Row("cuda.gradloom.Sgd", "Sgd", kInPlace),
    Row("cuda.gradloom.Adam", "Adam", kInPlace),
    Row("cuda.gradloom.NAdam", "NAdam", kInPlace),
    Row("cuda.gradloom.RAdam", "RAdam", kInPlace),
    Row("cuda.gradloom.Lion", "Lion", kInPlace),
    Row("cuda.gradloom.RmsProp", "RmsProp", kInPlace),
    Row("cuda.gradloom.Adagrad", "Adagrad", kInPlace),
    Row("cuda.gradloom.Adadelta", "Adadelta", kInPlace),
    Row("cuda.gradloom.Adamax", "Adamax", kInPlace),
    Row("cuda.gradloom.MovingAverage", "MovingAverage", kInPlace),
    Row("cuda.gradloom.LambDirection", "LambDirection", kDirectionInPlace),
    {.name = "cuda.gradloom.LambApply",
     .op = "LambApply",
     .domain = "gradloom",
     .device = DeviceKind::kCuda,
     .rejects = RejectsLambApply,
     .may_alias = kApplyInPlace,
     .preserves_state_on_refusal = true},
    MultiTensorRow<0>("cuda.gradloom.MultiTensorUpdate0", kInPlace0),
    MultiTensorRow<1>("cuda.gradloom.MultiTensorUpdate1", kInPlace1),
    MultiTensorRow<2>("cuda.gradloom.MultiTensorUpdate2", kInPlace2),
    MultiTensorRow<3>("cuda.gradloom.MultiTensorUpdate3", kInPlace3),
};

}  // namespace

std::span<const KernelRow> CudaOptimizerRows() { return kRows; }

}  // namespace gradloom

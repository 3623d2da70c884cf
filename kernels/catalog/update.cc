#include "kernels/catalog/update.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gradloom {

scalar::SgdOptions SgdOptionsOf(const Attributes& a) {
  return {.momentum = a.Float("momentum", 0),
          .dampening = a.Float("dampening", 0),
          .weight_decay = a.Float("weight_decay", 0),
          .nesterov = a.Int("nesterov", 0) != 0};
}

scalar::AdamOptions AdamOptionsOf(const Attributes& a) {
  return {.beta1 = a.Float("beta1", 0.9),
          .beta2 = a.Float("beta2", 0.999),
          .eps = a.Float("eps", 1e-8),
          .weight_decay = a.Float("weight_decay", 0),
          .decoupled = a.Int("decoupled", 0) != 0};
}

scalar::NAdamOptions NAdamOptionsOf(const Attributes& a) {
  return {.adam = AdamOptionsOf(a), .momentum_decay = a.Float("momentum_decay", 4e-3)};
}

scalar::RAdamOptions RAdamOptionsOf(const Attributes& a) { return {.adam = AdamOptionsOf(a)}; }

scalar::LionOptions LionOptionsOf(const Attributes& a) {
  return {.beta1 = a.Float("beta1", 0.9), .beta2 = a.Float("beta2", 0.99), .weight_decay = a.Float("weight_decay", 0)};
}

scalar::RmsPropOptions RmsPropOptionsOf(const Attributes& a) {
  return {.alpha = a.Float("alpha", 0.99),
          .eps = a.Float("eps", 1e-8),
          .weight_decay = a.Float("weight_decay", 0),
          .momentum = a.Float("momentum", 0),
          .centered = a.Int("centered", 0) != 0};
}

scalar::AdagradOptions AdagradOptionsOf(const Attributes& a) {
  return {.lr_decay = a.Float("lr_decay", 0), .eps = a.Float("eps", 1e-10), .weight_decay = a.Float("weight_decay", 0)};
}

scalar::AdadeltaOptions AdadeltaOptionsOf(const Attributes& a) {
  return {.rho = a.Float("rho", 0.9), .eps = a.Float("eps", 1e-6), .weight_decay = a.Float("weight_decay", 0)};
}

scalar::AdamaxOptions AdamaxOptionsOf(const Attributes& a) {
  return {.beta1 = a.Float("beta1", 0.9),
          .beta2 = a.Float("beta2", 0.999),
          .eps = a.Float("eps", 1e-8),
          .weight_decay = a.Float("weight_decay", 0)};
}

scalar::MovingAverageOptions MovingAverageOptionsOf(const Attributes& a) {
  return {.decay = a.Float("decay", 0.999), .warmup = a.Int("warmup", 0) != 0};
}

DType CopyTypeOf(const Attributes& a) { return static_cast<DType>(a.Int("copy_type", static_cast<int64_t>(DType::kUndefined))); }

size_t StatesOf(const KernelCall& call) { return call.outputs.size() - (CopyTypeOf(call.attributes) == DType::kUndefined ? 1 : 2); }

int CopiedOutput(const KernelCall& call, int output) {
  constexpr std::string_view kWriters[] = {
      "Sgd", "Adam", "NAdam", "RAdam", "Lion", "RmsProp", "Adagrad", "Adadelta", "Adamax", "LambApply", "MultiTensorUpdate"};
  if (call.domain != "gradloom" || std::find(std::begin(kWriters), std::end(kWriters), call.op) == std::end(kWriters)) return -1;
  const auto outputs = static_cast<int>(call.outputs.size());
  if (CopyTypeOf(call.attributes) == DType::kUndefined) return -1;
  if (call.op != "MultiTensorUpdate") return output == outputs - 1 ? 0 : -1;
  const int tensors = TensorsOf(call), copies = outputs - tensors;
  return tensors > 0 && output >= copies ? (output - copies) * (copies / tensors) : -1;
}

int TensorsOf(const KernelCall& call) {
  const int64_t tensors = call.attributes.Int("tensors", 0);
  if (tensors < 1 || tensors > kMaxTensors) return -1;
  const int64_t operands = static_cast<int64_t>(call.inputs.size()) - kMultiTensorParameters;
  const int64_t copies = CopyTypeOf(call.attributes) == DType::kUndefined ? 0 : tensors;
  const int64_t next = static_cast<int64_t>(call.outputs.size()) - copies;
  return operands - next == tensors && next >= tensors && next % tensors == 0 ? static_cast<int>(tensors) : -1;
}

namespace {

// The number of next values of each parameter of a MultiTensorUpdate: its own, and those of its states.
int NextOfEach(const KernelCall& call) { return (static_cast<int>(call.inputs.size()) - kMultiTensorParameters) / TensorsOf(call) - 1; }

}  // namespace

std::vector<int> UpdateInputs(const KernelCall& call, int tensor) {
  const int states = NextOfEach(call) - 1;
  const int first = kMultiTensorParameters + tensor * (2 + states);
  std::vector<int> inputs = {first, first + 1, kMultiTensorLr, kMultiTensorStep, kMultiTensorClip, kMultiTensorApply};
  for (int k = 0; k < states; ++k) inputs.push_back(first + 2 + k);
  return inputs;
}

std::vector<int> UpdateOutputs(const KernelCall& call, int tensor) {
  const int each = NextOfEach(call);
  std::vector<int> outputs;
  for (int k = 0; k < each; ++k) outputs.push_back(tensor * each + k);
  if (CopyTypeOf(call.attributes) != DType::kUndefined) outputs.push_back(TensorsOf(call) * each + tensor);
  return outputs;
}

KernelCall UpdateOf(const KernelCall& call, int tensor) {
  KernelCall update{.op = call.attributes.String("update", ""),
                    .domain = call.domain,
                    .attributes = call.attributes,
                    .inputs = {},
                    .outputs = {},
                    .threads = call.threads};
  for (const char* own : {"update", "tensors"}) update.attributes.erase(own);
  for (int input : UpdateInputs(call, tensor)) update.inputs.push_back(call.inputs[static_cast<size_t>(input)]);
  for (int output : UpdateOutputs(call, tensor)) update.outputs.push_back(call.outputs[static_cast<size_t>(output)]);
  return update;
}

namespace {

// Whether parameters and states that are zero stay zero if the gradient is. Adamax adds epsilon to its norm; without epsilon, all but SGD
// and Lion divide 0 by 0.
bool KeepsZeros(const KernelCall& call) {
  return call.op == "Sgd" || call.op == "Lion" || call.op == "MovingAverage" ||
         (call.op != "Adamax" && static_cast<float>(call.attributes.Float("eps", 1)) != 0);
}

}  // namespace

std::string RejectsUnequalOperands(const KernelCall& call) {
  const OperandType& parameter = call.inputs[kUpdateParameter];
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i >= kUpdateLr && i < kUpdateStates) continue;
    OperandType operand = call.inputs[i];
    const bool narrow = i == kUpdateGradient && Is16BitFloat(operand.dtype);
    if (narrow && parameter.dtype == DType::kFloat32) operand.dtype = DType::kFloat32;
    if (operand != parameter) return "operands that differ from the parameter";
  }
  const DType copy = CopyTypeOf(call.attributes);
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    OperandType expected = parameter;
    if (copy != DType::kUndefined && k + 1 == call.outputs.size()) expected.dtype = copy;
    if (call.outputs[k] != expected) return "outputs that differ from the parameter";
  }
  const bool padded = parameter.layout.Padded(parameter.shape) != parameter.shape;
  return padded && !KeepsZeros(call) ? "padding that would not stay zero" : "";
}

}  // namespace gradloom

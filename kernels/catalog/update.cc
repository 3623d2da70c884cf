#include "kernels/catalog/update.h"

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

int TensorsOf(const KernelCall& call) {
  const int operands = static_cast<int>(call.inputs.size()) - kMultiTensorParameters, results = static_cast<int>(call.outputs.size());
  const int tensors = operands - results;
  return tensors > 0 && results >= tensors && results % tensors == 0 ? tensors : -1;
}

std::vector<int> UpdateInputs(const KernelCall& call, int tensor) {
  const int states = static_cast<int>(call.outputs.size()) / TensorsOf(call) - 1;
  const int first = kMultiTensorParameters + tensor * (2 + states);
  std::vector<int> inputs = {first, first + 1, kMultiTensorLr, kMultiTensorStep, kMultiTensorClip, kMultiTensorApply};
  for (int k = 0; k < states; ++k) inputs.push_back(first + 2 + k);
  return inputs;
}

std::vector<int> UpdateOutputs(const KernelCall& call, int tensor) {
  const int each = static_cast<int>(call.outputs.size()) / TensorsOf(call);
  std::vector<int> outputs;
  for (int k = 0; k < each; ++k) outputs.push_back(tensor * each + k);
  return outputs;
}

KernelCall UpdateOf(const KernelCall& call, int tensor) {
  KernelCall update{.op = call.attributes.String("update", ""),
                    .domain = call.domain,
                    .attributes = call.attributes,
                    .inputs = {},
                    .outputs = {},
                    .threads = call.threads};
  update.attributes.erase("update");
  for (int input : UpdateInputs(call, tensor)) update.inputs.push_back(call.inputs[static_cast<size_t>(input)]);
  for (int output : UpdateOutputs(call, tensor)) update.outputs.push_back(call.outputs[static_cast<size_t>(output)]);
  return update;
}

std::string RejectsUnequalOperands(const KernelCall& call) {
  const OperandType& parameter = call.inputs[kUpdateParameter];
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool scalar = i >= kUpdateLr && i < kUpdateStates;
    if (!scalar && call.inputs[i] != parameter) return "operands that differ from the parameter";
  }
  for (const OperandType& output : call.outputs) {
    if (output != parameter) return "outputs that differ from the parameter";
  }
  const bool padded = parameter.layout.Padded(parameter.shape) != parameter.shape;
  return padded && call.op == "Adamax" ? "padding that would not stay zero" : "";
}

}  // namespace gradloom

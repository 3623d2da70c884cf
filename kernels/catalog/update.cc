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

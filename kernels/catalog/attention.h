// The form of a call of attention, for the kernels of every device.
#pragma once

#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/operands.h"
#include "runtime/base/attention_form.h"

namespace gradloom {

// The form of a call whose operands fit the operator.
inline AttentionForm AttentionFormOf(const KernelCall& call) {
  return {call.attributes, call.inputs[attention::kQ].shape, call.inputs[attention::kK].shape, call.inputs[attention::kV].shape};
}

// Whether a call returns log-sum-exps.
inline bool ReturnsLogSums(const KernelCall& call) { return call.op == "AttentionTraining" && HasOutput(call, attention::kLogSums); }
// Whether a gradient is given what the forward pass computed. Otherwise it repeats that.
inline bool HasLogSums(const KernelCall& call) { return call.op == "AttentionGrad" && call.inputs.size() > attention::kKeptLogSums; }

// Why a call that packs operands is not in one of the packed forms, or "".
inline std::string RejectsPackedOperands(const KernelCall& call) {
  const AttentionForm::Packing packing = AttentionForm::PackingOf(call.attributes);
  if (packing == AttentionForm::Packing::kNone) return "";
  const bool keys = packing == AttentionForm::Packing::kKeysAndValues;
  if (call.domain != "gradloom" || call.inputs[1].present() != keys || call.inputs[2].present()) return "K or V beside a packed operand";
  if (keys && call.inputs[1].dtype != call.inputs[0].dtype) return "operands of different types";
  std::string why;
  AttentionForm::Packed(call.attributes, call.inputs[0].shape.elements(), call.inputs[1].shape.elements(), &why);
  return why;
}

}  // namespace gradloom

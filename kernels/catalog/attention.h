// The form of a call of attention, for the kernels of every device.
#pragma once

#include "kernels/catalog/kernel.h"
#include "runtime/base/attention_form.h"

namespace gradloom {

// The form of a call whose operands fit the operator.
inline AttentionForm AttentionFormOf(const KernelCall& call) {
  return {call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.inputs[2].shape};
}

}  // namespace gradloom

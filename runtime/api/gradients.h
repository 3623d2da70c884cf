// State by name, and the gradients accumulated for the next update.
#pragma once

#include <string>

#include "runtime/api/guard.h"
#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"

namespace gradloom::api {

// The state tensor that holds the accumulated gradient of a parameter. Throws Error(kConfig).
const StateTensor& GradientState(const Plan& plan, const std::string& parameter);

// The accumulated gradient itself, in host memory. If the loss is scaled, it is the gradient of the unscaled loss. Throws Error(kConfig).
Tensor GradientOf(const Call& call, const std::string& parameter);
// Throws Error(kConfig).
const StateTensor& StateOf(const Plan& plan, const std::string& name);
// Throws Error(kConfig) if `kind` is not a kind of tensor.
void CheckKind(GradloomTensorKind kind);

}  // namespace gradloom::api

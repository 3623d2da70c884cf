// State by name, and the gradients that wait for an update.
#pragma once

#include <string>

#include "runtime/api/guard.h"
#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"

namespace gradloom::api {

// Where the sum for a parameter is kept. Throws Error(kConfig).
const StateTensor& GradientState(const Plan& plan, const std::string& parameter);

// The sum itself, in host memory; that of a loss that is scaled is the loss's own. Throws Error(kConfig).
Tensor GradientOf(const Call& call, const std::string& parameter);
// Throws Error(kConfig).
const StateTensor& StateOf(const Plan& plan, const std::string& name);
// Throws Error(kConfig) for what is no kind of tensor.
void CheckKind(GradloomTensorKind kind);

}  // namespace gradloom::api

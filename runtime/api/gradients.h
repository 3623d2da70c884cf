// The gradients that wait for an update.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom::api {

// Where the sum for a parameter is kept. Throws Error(kConfig).
const StateTensor& GradientState(const Plan& plan, const std::string& parameter);

}  // namespace gradloom::api

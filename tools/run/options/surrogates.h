// Reads surrogate gradients of step functions.
#pragma once

#include <vector>

#include "compiler/passes/gradient/surrogates.h"
#include "tools/config/configuration.h"

namespace gradloom {

// Those of the key model.surrogate: "atan(2)", or "straight_through@/sign*" for steps with such a name. Throws Error(kConfig).
std::vector<Surrogate> SurrogatesOf(const Configuration& configuration);

}  // namespace gradloom

// What the verifier cannot know of a plan that was read from a file: whether the operands of its launches are those that their operators
// take. The type rules that a model is imported with say it.
#pragma once

#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kPlan) for the first launch whose inputs its operator does not take, or whose outputs are of other types than it gives.
// To be called before Verify, as the rows of kernels rely on it; what has ids out of range is left to Verify.
void VerifyLaunches(const Plan& plan);

}  // namespace gradloom

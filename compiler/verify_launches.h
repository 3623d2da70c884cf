// Checks a plan read from a file for what the verifier cannot know: whether the operands of its launches fit their operators. Uses the type
// rules with which models are imported.
#pragma once

#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kPlan) for the first launch whose inputs its operator does not accept, or whose outputs have other types than it produces.
// Call it before Verify, since kernel rows rely on it. Instructions with ids out of range are left to Verify.
void VerifyLaunches(const Plan& plan);

}  // namespace gradloom

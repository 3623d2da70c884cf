// Plans from untrusted sources. How a plan is proved safe depends on which parts the library contains.
#pragma once

#include "include/gradloom/gradloom_c.h"
#include "runtime/plan/plan.h"

namespace gradloom::api {

// Throws Error(kPlan).
using ProvePlan = void (*)(const Plan& plan);

GradloomStatus* LoadPlanWith(ProvePlan prove, const char* path, GradloomPlan** out);
GradloomStatus* LoadPlanFromBufferWith(ProvePlan prove, const void* bytes, size_t num_bytes, GradloomPlan** out);

}  // namespace gradloom::api

// Plans from anyone: how they are proved sound depends on what the library has.
#pragma once

#include "include/gradloom/gradloom_c.h"
#include "runtime/plan/plan.h"

namespace gradloom::api {

// Throws Error(kPlan).
using ProvePlan = void (*)(const Plan& plan);

GradloomStatus* LoadPlanWith(ProvePlan prove, const char* path, GradloomPlan** out);
GradloomStatus* LoadPlanFromBufferWith(ProvePlan prove, const void* bytes, size_t num_bytes, GradloomPlan** out);

}  // namespace gradloom::api

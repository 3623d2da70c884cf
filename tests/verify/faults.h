// What the verifier says about plans with made-up kernels.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {

// A line for each: "[check] where: message".
std::string Text(const std::vector<PlanFault>& faults);

// Expects a fault of this check whose text contains all of these.
void ExpectFault(const Plan& plan, std::string_view check, std::initializer_list<std::string_view> says);

// The plan of SamplePlans with this name.
Plan Sample(const std::string& name);

}  // namespace gradloom

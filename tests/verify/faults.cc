#include "tests/verify/faults.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "tests/verify/plan_builder.h"

namespace gradloom {

std::string Text(const std::vector<PlanFault>& faults) {
  std::string text;
  for (const PlanFault& fault : faults) text += "[" + std::string(fault.check) + "] " + fault.where + ": " + fault.message + "\n";
  return text;
}

void ExpectFault(const Plan& plan, std::string_view check, std::initializer_list<std::string_view> says) {
  const std::vector<PlanFault> faults = Verify(plan, FindTestKernel);
  for (const PlanFault& fault : faults) {
    const std::string all = fault.where + ": " + fault.message;
    if (fault.check == check &&
        std::all_of(says.begin(), says.end(), [&](std::string_view word) { return all.find(word) != std::string::npos; }))
      return;
  }
  ADD_FAILURE() << "no fault of '" << check << "' that says \"" << *says.begin() << "\" ...; found:\n" << Text(faults);
}

Plan Sample(const std::string& name) {
  for (auto& [known, plan] : SamplePlans()) {
    if (known == name) return plan;
  }
  throw Error(ErrorCode::kInternal, "no sample plan " + name);
}

}  // namespace gradloom

// Plans on disk: docs/plan-format.md has the bytes.
#pragma once

#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace gradloom {

// Writes the plan under `path`, complete or not at all. Throws Error(kResource) where that fails,
// Error(kLimit) where the plan without its tensors passes the format's limit.
void WritePlan(const Plan& plan, const std::string& path);

// Reads what WritePlan wrote. The file may come from anyone: Error(kPlan) says what is damaged or too new
// (and where), Error(kIo) that it cannot be read; memory is bounded by the file's size. What the plan
// *does* is not looked at: VerifyOrThrow comes before running it.
Plan ReadPlan(const std::string& path);

// The same of such a file's bytes in memory; `name` is for messages.
Plan ReadPlanFrom(std::string_view bytes, const std::string& name);

// 16 hexadecimal digits that change with any byte that WritePlan would write; screens show the first 8.
std::string PlanHash(const Plan& plan);

}  // namespace gradloom

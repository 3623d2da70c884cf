// Plans on disk. docs/plan-format.md describes the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace gradloom {

// Writes the plan to `path`, complete or not at all. Throws Error(kResource) if that fails, Error(kLimit) if the plan without its tensors
// exceeds the format's limit.
void WritePlan(const Plan& plan, const std::string& path);

// What is read of a plan's initial values and constants, which are as large as the model. kSkipped: they are undefined, for readers that
// only look at the plan, or take its weights from elsewhere; it cannot be run.
enum class PlanTensors : uint8_t { kRead, kSkipped };

// Reads a file that WritePlan wrote. The file may come from an untrusted source: Error(kPlan) says what is damaged or too new, and where;
// Error(kIo) that it cannot be read, and Error(kResource) that there is no memory for it. Memory use is bounded by the file's size. What
// the plan *does* is not checked: call VerifyOrThrow before running it.
Plan ReadPlan(const std::string& path, PlanTensors tensors = PlanTensors::kRead);

// The same for the bytes of such a file in memory. `name` is used in messages.
Plan ReadPlanFrom(std::string_view bytes, const std::string& name);

// 16 hexadecimal digits that depend on every byte that WritePlan would write. Messages show the first 8.
std::string PlanHash(const Plan& plan);

}  // namespace gradloom

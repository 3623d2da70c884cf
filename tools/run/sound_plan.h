// Reads plan files from untrusted sources.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// ReadPlan for a file or the folder of a run, followed by verification that the plan is sound and not empty. Code that follows the plan's
// ids relies on it. `proof_ms`: receives the time of the verification; may be null. Throws Error(kPlan), and what ReadPlan throws.
Plan ReadSoundPlan(const std::string& path, double* proof_ms = nullptr);

// Verifies a plan in memory, including the operands of each launch, for which only the import has type rules. Throws Error(kPlan).
void ProveSound(const Plan& plan);

}  // namespace gradloom

// Plan files from anyone.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// ReadPlan of a file, or of the folder of a run, with the proof that the plan is sound and has something to do. What goes through a plan
// by its ids relies on it. `proof_ms`: gets what the proof took; may be null. Throws Error(kPlan), and what ReadPlan throws.
Plan ReadSoundPlan(const std::string& path, double* proof_ms = nullptr);

// The same without the reading.
void ProveSound(const Plan& plan);

}  // namespace gradloom

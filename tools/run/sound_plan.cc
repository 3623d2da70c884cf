#include "tools/run/sound_plan.h"

#include "compiler/verify_launches.h"
#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/verify_plan.h"
#include "tools/run/serve/trained_model.h"

namespace gradloom {

void ProveSound(const Plan& plan) {
  VerifyLaunches(plan);
  VerifyOrThrow(plan);
}

Plan ReadSoundPlan(const std::string& path, double* proof_ms) {
  const std::string file = PlanPathOf(path);
  Plan plan = ReadPlan(file);
  const Stopwatch time;
  ProveSound(plan);
  if (proof_ms != nullptr) *proof_ms = time.ms();
  if (plan.entries.empty())
    throw Error(ErrorCode::kPlan, "the plan has no entry, so nothing can be run", Escaped(file, 4096), "compile the model again");
  return plan;
}

}  // namespace gradloom

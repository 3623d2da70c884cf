#include "runtime/session/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/plan/schedule_formula.h"

namespace gradloom {
namespace {

using schedule_formula::StepSize;
using schedule_formula::TotalSteps;
using schedule_formula::WarmupSteps;

constexpr std::string_view kKinds[] = {"constant", "linear", "cosine", "step", "one_cycle"};

[[noreturn]] void Refuse(const Schedule& schedule, const std::string& what, const std::string& help = "") {
  throw Error(ErrorCode::kConfig, "schedule " + Escaped(schedule.kind) + ": " + what, "", help);
}

}  // namespace

void CheckSchedule(const Schedule& schedule) {
  const std::string& kind = schedule.kind;
  if (std::ranges::find(kKinds, kind) == std::end(kKinds)) {
    throw Error(ErrorCode::kConfig, "unknown schedule '" + Escaped(kind) + "'", "", "expected one of: " + Joined(kKinds));
  }
  if (!std::isfinite(schedule.lr) || schedule.lr < 0) Refuse(schedule, "the learning rate must be finite and at least 0");
  const int64_t total = TotalSteps(schedule), warmup = WarmupSteps(schedule);
  if (warmup < 0)
    Refuse(schedule, "the warm-up must not be negative, got " + std::to_string(warmup) + " steps", "use --warmup 500, or --warmup 5%");
  if (kind == "linear" || kind == "cosine" || kind == "one_cycle") {
    if (total < 1) Refuse(schedule, "the number of steps is unknown", "set train.steps (--steps N), or --epochs N of a run");
    if (warmup > total) {
      Refuse(schedule, "the warm-up of " + std::to_string(warmup) + " steps is longer than the run of " + std::to_string(total),
             "use --warmup 5%, or a longer run");
    }
  }
  if (kind == "step") {
    if (total < 1 && !schedule.attributes.has("step_size")) {
      Refuse(schedule, "the number of steps and step_size are both unknown",
             "set --step-size N, or train.steps (--steps N), or --epochs N of a run");
    }
    if (StepSize(schedule) < 1) Refuse(schedule, "step_size must be at least 1, got " + std::to_string(StepSize(schedule)));
  }
}

double LearningRate(const Schedule& schedule, int64_t step) {
  CheckSchedule(schedule);
  return schedule_formula::Rate<double, int64_t>(schedule, std::max<int64_t>(step, 0));
}

}  // namespace gradloom

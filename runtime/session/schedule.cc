#include "runtime/session/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/plan/schedule_formula.h"

namespace gradloom {
namespace {

using schedule_formula::DecaySteps;
using schedule_formula::StepSize;
using schedule_formula::TotalSteps;
using schedule_formula::WarmupSteps;

constexpr std::string_view kKinds[] = {"constant",   "linear",      "polynomial", "cosine",       "cosine_restarts", "step",
                                       "multi_step", "exponential", "wsd",        "inverse_sqrt", "one_cycle"};
constexpr std::string_view kEnding[] = {"linear", "polynomial", "cosine", "cosine_restarts", "wsd", "one_cycle"};

[[noreturn]] void Refuse(const Schedule& schedule, const std::string& what, const std::string& help = "") {
  throw Error(ErrorCode::kConfig, "schedule " + Escaped(schedule.kind) + ": " + what, "", help);
}

bool IsOneOf(const std::string& kind, std::span<const std::string_view> kinds) { return std::ranges::find(kinds, kind) != kinds.end(); }

void CheckFactors(const Schedule& schedule) {
  for (const char* name : {"gamma", "min_lr", "power"}) {
    const double value = schedule.attributes.Float(name, 0);
    if (!std::isfinite(value) || value < 0) Refuse(schedule, std::string(name) + " must be finite and at least 0");
  }
}

void CheckCycles(const Schedule& schedule, int64_t total) {
  const int64_t cycles = schedule.attributes.Int("cycles", 1);
  if (cycles < 1) Refuse(schedule, "the number of cycles must be at least 1, got " + std::to_string(cycles));
  // The product is computed.
  if (!CheckedMul(cycles, total)) Refuse(schedule, std::to_string(cycles) + " cycles of " + std::to_string(total) + " steps are too many");
}

void CheckDecay(const Schedule& schedule, int64_t total, int64_t warmup) {
  const int64_t decay = DecaySteps(schedule);
  if (decay < 0) Refuse(schedule, "the decay must not be negative, got " + std::to_string(decay) + " steps");
  if (warmup <= total - decay) return;
  Refuse(schedule,
         "a warm-up of " + std::to_string(warmup) + " and a decay of " + std::to_string(decay) + " steps do not fit into the run of " +
             std::to_string(total),
         "use --warmup 5% and --decay-phase 20%, or a longer run");
}

void CheckMilestones(const Schedule& schedule) {
  const std::vector<int64_t> milestones = schedule.attributes.Ints("milestones");
  if (milestones.empty()) Refuse(schedule, "there are no milestones", "give the updates at which the rate falls: --milestones 50%,75%");
  if (milestones.front() < 0 || std::ranges::adjacent_find(milestones, std::greater()) != milestones.end())
    Refuse(schedule, "the milestones must ascend");
}

}  // namespace

void CheckSchedule(const Schedule& schedule) {
  const std::string& kind = schedule.kind;
  if (!IsOneOf(kind, kKinds)) {
    throw Error(ErrorCode::kConfig, "unknown schedule '" + Escaped(kind) + "'", "", "expected one of: " + Joined(kKinds));
  }
  if (!std::isfinite(schedule.lr) || schedule.lr < 0) Refuse(schedule, "the learning rate must be finite and at least 0");
  const int64_t total = TotalSteps(schedule), warmup = WarmupSteps(schedule);
  if (warmup < 0)
    Refuse(schedule, "the warm-up must not be negative, got " + std::to_string(warmup) + " steps", "use --warmup 500, or --warmup 5%");
  CheckFactors(schedule);
  if (schedule.attributes.has(kUnknownShare)) {
    Refuse(schedule, "a part of it is a share of the run, whose number of steps is unknown",
           "set train.steps (--steps N), or --epochs N of a run, or give numbers of updates");
  }
  if (kind == "multi_step") CheckMilestones(schedule);
  if (IsOneOf(kind, kEnding)) {
    if (total < 1) Refuse(schedule, "the number of steps is unknown", "set train.steps (--steps N), or --epochs N of a run");
    if (warmup > total) {
      Refuse(schedule, "the warm-up of " + std::to_string(warmup) + " steps is longer than the run of " + std::to_string(total),
             "use --warmup 5%, or a longer run");
    }
  }
  if (kind == "cosine_restarts") CheckCycles(schedule, total);
  if (kind == "wsd") CheckDecay(schedule, total, warmup);
  if (kind == "step" || kind == "exponential") {
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

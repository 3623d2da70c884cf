#include "runtime/session/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

[[noreturn]] void Refuse(const Schedule& schedule, const std::string& what, const std::string& help = "") {
  throw Error(ErrorCode::kConfig, "schedule " + Escaped(schedule.kind) + ": " + what, "", help);
}

int64_t TotalSteps(const Schedule& schedule) { return schedule.attributes.Int("total_steps", 0); }
int64_t WarmupSteps(const Schedule& schedule) { return schedule.attributes.Int("warmup_steps", 0); }

int64_t StepSize(const Schedule& schedule) {
  const int64_t length = TotalSteps(schedule) - WarmupSteps(schedule);
  return schedule.attributes.Int("step_size", std::max<int64_t>(1, (length + 2) / 3));
}

double CosineBetween(double from, double to, double share) { return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share)); }

double OneCycle(const Schedule& schedule, int64_t step) {
  const Attributes& a = schedule.attributes;
  const double total = static_cast<double>(TotalSteps(schedule));
  const double pct_start = a.has("warmup_steps") ? static_cast<double>(WarmupSteps(schedule)) / total : a.Float("pct_start", 0.3);
  const double first = schedule.lr / a.Float("div_factor", 25), last = first / a.Float("final_div_factor", 1e4);
  const double top = pct_start * total - 1, end = total - 1, at = std::min(static_cast<double>(step), end);
  if (at <= top) return top > 0 ? CosineBetween(first, schedule.lr, at / top) : schedule.lr;
  return end > top ? CosineBetween(schedule.lr, last, (at - top) / (end - top)) : last;
}

// The factor of kind step after t steps.
double Decays(const Schedule& schedule, int64_t t) {
  const std::vector<int64_t> milestones = schedule.attributes.Ints("milestones");
  const int64_t count = schedule.attributes.has("milestones")
                            ? std::ranges::count_if(milestones, [&](int64_t milestone) { return milestone <= t; })
                            : t / StepSize(schedule);
  return std::pow(schedule.attributes.Float("gamma", 0.1), static_cast<double>(count));
}

}  // namespace

std::vector<std::string> ScheduleKinds() { return {"constant", "linear", "cosine", "step", "factors", "one_cycle"}; }

void CheckSchedule(const Schedule& schedule) {
  const std::string& kind = schedule.kind;
  const Attributes& a = schedule.attributes;
  const std::vector<std::string> kinds = ScheduleKinds();
  if (std::ranges::find(kinds, kind) == kinds.end()) {
    std::string known;
    for (const std::string& name : kinds) known += (known.empty() ? "" : ", ") + name;
    throw Error(ErrorCode::kConfig, "no schedule '" + Escaped(kind) + "'", "", "schedules are: " + known);
  }
  if (!std::isfinite(schedule.lr) || schedule.lr < 0) Refuse(schedule, "the learning rate must be a number of at least 0");
  const int64_t total = TotalSteps(schedule), warmup = WarmupSteps(schedule);
  if (warmup < 0) Refuse(schedule, "the warm-up has " + std::to_string(warmup) + " steps");
  if (kind == "linear" || kind == "cosine" || kind == "one_cycle") {
    if (total < 1) Refuse(schedule, "the number of steps is not known", "give it: --steps N or --epochs N");
    if (warmup > total) {
      Refuse(schedule, "the warm-up of " + std::to_string(warmup) + " steps is longer than the run of " + std::to_string(total));
    }
  }
  if (kind == "step" && !a.has("milestones")) {
    if (total < 1 && !a.has("step_size")) Refuse(schedule, "neither the number of steps nor step_size is known");
    if (StepSize(schedule) < 1) Refuse(schedule, "step_size must be at least 1");
  }
  if (kind == "factors" && a.Floats("factors").empty()) Refuse(schedule, "there are no factors");
  if (kind == "one_cycle") {
    const double pct_start = a.Float("pct_start", 0.3);
    if (!(pct_start >= 0 && pct_start <= 1)) Refuse(schedule, "pct_start must lie in [0, 1]");
    if (!(a.Float("div_factor", 25) > 0 && a.Float("final_div_factor", 1e4) > 0))
      Refuse(schedule, "div_factor and final_div_factor must be above 0");
  }
}

double LearningRate(const Schedule& schedule, int64_t step) {
  CheckSchedule(schedule);
  const std::string& kind = schedule.kind;
  const double lr = schedule.lr;
  step = std::max<int64_t>(step, 0);
  if (kind == "one_cycle") return OneCycle(schedule, step);

  const Attributes& a = schedule.attributes;
  const int64_t warmup = WarmupSteps(schedule);
  if (step < warmup) {
    const double start = a.Float("warmup_start", 0);
    return lr * (start + (1 - start) * static_cast<double>(step) / static_cast<double>(warmup));
  }
  if (kind == "constant") return lr;
  if (kind == "factors") {
    const std::vector<double> factors = a.Floats("factors");
    return lr * factors[static_cast<size_t>(std::min(step, static_cast<int64_t>(factors.size()) - 1))];
  }
  if (kind == "step") return lr * Decays(schedule, step - warmup);
  const int64_t length = TotalSteps(schedule) - warmup;
  const double share = length < 1 ? 1.0 : std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(length));
  if (kind == "linear") return lr * (1 - (1 - a.Float("end_factor", 0)) * share);
  return CosineBetween(lr, a.Float("min_lr", 0), share);
}

}  // namespace gradloom

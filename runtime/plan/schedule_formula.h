// Learning-rate schedules as formulas over the number of updates. They are templates: the host runs them on numbers
// (runtime/session/schedule.h), and export runs them on numbers that record ONNX operators (compiler/passes/update/traced.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "runtime/plan/plan.h"

namespace gradloom::schedule_formula {

inline double Select(bool condition, double a, double b) { return condition ? a : b; }
inline int64_t Smaller(int64_t a, int64_t b) { return std::min(a, b); }
inline double Smaller(double a, double b) { return std::min(a, b); }

inline int64_t TotalSteps(const Schedule& s) { return s.attributes.Int("total_steps", 0); }
inline int64_t WarmupSteps(const Schedule& s) { return s.attributes.Int("warmup_steps", 0); }

inline int64_t StepSize(const Schedule& s) {
  const int64_t length = TotalSteps(s) - WarmupSteps(s);
  return s.attributes.Int("step_size", std::max<int64_t>(1, (length + 2) / 3));
}

template <typename D>
D CosineBetween(double from, double to, D share) {
  using std::cos;
  return to + (from - to) / 2 * (1 + cos(std::numbers::pi * share));
}

template <typename D, typename N>
D OneCycle(const Schedule& s, N step) {
  const double total = static_cast<double>(TotalSteps(s));
  const double rise = s.attributes.has("warmup_steps") ? static_cast<double>(WarmupSteps(s)) : 0.3 * total;
  const double first = s.lr / 25, last = first / 1e4;
  const double top = rise - 1, end = total - 1;
  const D at = Smaller(D(step), D(end));
  const D up = top > 0 ? CosineBetween(first, s.lr, D(at / top)) : D(s.lr);
  const D down = end > top ? CosineBetween(s.lr, last, D((at - top) / (end - top))) : D(last);
  return Select(at <= top, up, down);
}

template <typename D, typename N>
D AfterWarmup(const Schedule& s, N step, int64_t warmup) {
  using std::pow;
  const double lr = s.lr;
  if (s.kind == "step") return lr * pow(D(s.attributes.Float("gamma", 0.1)), D(N(step - warmup) / StepSize(s)));
  const int64_t length = TotalSteps(s) - warmup;
  const D share = length < 1 ? D(1) : Smaller(D(1), D(D(step - warmup) / static_cast<double>(length)));
  if (s.kind == "linear") return lr * (1 - share);
  return CosineBetween(lr, s.attributes.Float("min_lr", 0), share);
}

// The learning rate of the update that follows `step` (at least 0) updates. The schedule must pass CheckSchedule.
template <typename D, typename N>
D Rate(const Schedule& s, N step) {
  if (s.kind == "one_cycle") return OneCycle<D>(s, step);
  const int64_t warmup = WarmupSteps(s);
  const D behind = s.kind == "constant" ? D(s.lr) : AfterWarmup<D>(s, step, warmup);
  if (warmup == 0) return behind;
  return Select(step < warmup, s.lr * (D(step) / static_cast<double>(warmup)), behind);
}

}  // namespace gradloom::schedule_formula

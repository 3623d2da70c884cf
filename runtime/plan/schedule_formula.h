// Learning-rate schedules as formulas over the number of updates. They are templates: the host runs them on numbers
// (runtime/session/schedule.h), and export runs them on numbers that record ONNX operators (compiler/passes/update/traced.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

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

// One factor at each of the milestones, which are counted from the first update.
template <typename D, typename N>
D MultiStep(const Schedule& s, N step) {
  D rate(s.lr);
  double reduced = s.lr;
  for (const int64_t milestone : s.attributes.Ints("milestones")) {
    reduced *= s.attributes.Float("gamma", 0.1);
    rate = Select(step < milestone, rate, D(reduced));
  }
  return rate;
}

inline int64_t DecaySteps(const Schedule& s) {
  return s.attributes.Int("decay_steps", std::min(TotalSteps(s) / 5 + (TotalSteps(s) % 5 != 0 ? 1 : 0), TotalSteps(s) - WarmupSteps(s)));
}

// Warm-up, stable, decay: along a line at the end.
template <typename D, typename N>
D StableThenDecay(const Schedule& s, N step) {
  const double min_lr = s.attributes.Float("min_lr", 0);
  const int64_t decay = DecaySteps(s), stable = TotalSteps(s) - decay;
  if (decay < 1) return D(s.lr);
  const D share = Smaller(D(1), D(D(step - stable) / static_cast<double>(decay)));
  return Select(step < stable, D(s.lr), D(s.lr - (s.lr - min_lr) * share));
}

// As transformers.get_inverse_sqrt_schedule: without a warm-up, of which the root is taken, as after 10,000 steps of one.
template <typename D, typename N>
D InverseRoot(const Schedule& s, N step, int64_t warmup) {
  using std::pow;
  const int64_t scale = warmup > 0 ? warmup : 10'000;
  return s.lr * pow(D(D(step + (scale - warmup)) / static_cast<double>(scale)), D(-0.5));
}

template <typename D, typename N>
D CosineRestarts(const Schedule& s, N after, int64_t length) {
  const double min_lr = s.attributes.Float("min_lr", 0);
  if (length < 1) return D(min_lr);
  const N cycles = N(Smaller(after, N(length)) * s.attributes.Int("cycles", 1));
  const N within = N(cycles - N(cycles / length) * length);
  return Select(after < length, CosineBetween(s.lr, min_lr, D(D(within) / static_cast<double>(length))), D(min_lr));
}

template <typename D, typename N>
D AfterWarmup(const Schedule& s, N step, int64_t warmup) {
  using std::pow;
  const double lr = s.lr;
  if (s.kind == "multi_step") return MultiStep<D>(s, step);
  if (s.kind == "wsd") return StableThenDecay<D>(s, step);
  if (s.kind == "inverse_sqrt") return InverseRoot<D>(s, step, warmup);
  const double gamma = s.attributes.Float("gamma", 0.1);
  if (s.kind == "step") return lr * pow(D(gamma), D(N(step - warmup) / StepSize(s)));
  if (s.kind == "exponential") return lr * pow(D(gamma), D(D(step - warmup) / static_cast<double>(StepSize(s))));
  const int64_t length = TotalSteps(s) - warmup;
  if (s.kind == "cosine_restarts") return CosineRestarts<D>(s, N(step - warmup), length);
  const D share = length < 1 ? D(1) : Smaller(D(1), D(D(step - warmup) / static_cast<double>(length)));
  if (s.kind == "linear") return lr * (1 - share);
  const double min_lr = s.attributes.Float("min_lr", 0);
  if (s.kind == "polynomial") return min_lr + (lr - min_lr) * pow(D(1 - share), D(s.attributes.Float("power", 1)));
  return CosineBetween(lr, min_lr, share);
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

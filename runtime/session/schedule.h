// Learning-rate schedules: data in the plan, evaluated on the host before each step.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace gradloom {

// An attribute of a schedule whose warm-up or milestones are shares of a run of unknown length. CheckSchedule refuses it.
inline constexpr char kUnknownShare[] = "unknown_share";

// Throws Error(kConfig) for an unknown kind, or an attribute that is missing or out of range.
void CheckSchedule(const Schedule& schedule);

// The learning rate of the update after `step` updates. With lr the schedule's, t the steps after the warm-up and T = total_steps -
// warmup_steps, where t is at most T:
//
//   constant         lr
//   linear           lr * (1 - t / T)
//   polynomial       min_lr + (lr - min_lr) * (1 - t / T) ^ power             min_lr 0, power 1
//   cosine           min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2       min_lr 0
//   cosine_restarts  the same, with the fraction of cycles * t / T            min_lr 0; min_lr at the end
//   step             lr * gamma ^ (t / step_size, rounded down)               gamma 0.1, step_size T / 3 rounded up
//   multi_step       lr * gamma ^ (number of milestones up to `step`)         gamma 0.1
//   exponential      lr * gamma ^ (t / step_size)                             gamma 0.1, step_size T / 3 rounded up
//   wsd              lr, and in the last d steps lr - (lr - min_lr) * share of d   min_lr 0, d = decay_steps, total_steps / 5 rounded up
//   inverse_sqrt     lr * sqrt(w / (t + w))                                   w = warmup_steps, or 10,000 without
//   one_cycle        from lr / 25 up to lr in the first warmup_steps (or 0.3 * total_steps), then down to lr / 250,000, both along a cosine
//
// These are torch.optim.lr_scheduler's LinearLR, PolynomialLR, CosineAnnealingLR, StepLR, MultiStepLR, ExponentialLR (step_size 1) and
// OneCycleLR; cosine_restarts and inverse_sqrt are Hugging Face's, and so is wsd (warm-up, stable, decay) with a linear decay. Except in
// one_cycle, the first warmup_steps rise linearly from 0 to lr, like a LambdaLR in a SequentialLR. Those with a T need total_steps; step
// and exponential need that or step_size. Throws like CheckSchedule.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace gradloom

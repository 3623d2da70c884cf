// Learning-rate schedules: data in the plan, evaluated on the host before each step.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace gradloom {

// Throws Error(kConfig) for an unknown kind, or an attribute that is missing or out of range.
void CheckSchedule(const Schedule& schedule);

// The learning rate of the update after `step` updates. With lr the schedule's, t the steps after the warm-up and T = total_steps -
// warmup_steps, where t is at most T:
//
//   constant   lr
//   linear     lr * (1 - t / T)
//   cosine     min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2       min_lr 0
//   step       lr * gamma ^ (t / step_size, rounded down)               gamma 0.1, step_size T / 3 rounded up
//   one_cycle  from lr / 25 up to lr in the first warmup_steps (or 0.3 * total_steps), then down to lr / 250,000, both along a cosine
//
// These are torch.optim.lr_scheduler's LinearLR, CosineAnnealingLR, StepLR and OneCycleLR. Except in one_cycle, the first warmup_steps rise
// linearly from 0 to lr, like a LambdaLR in a SequentialLR. linear, cosine and one_cycle need total_steps; step needs that or step_size.
// Throws like CheckSchedule.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace gradloom

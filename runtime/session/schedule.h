// Learning-rate schedules: data in the plan, evaluated on the host before each step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The names of the kinds.
std::vector<std::string> ScheduleKinds();

// Throws Error(kConfig) for an unknown kind, or an attribute that is missing or out of range.
void CheckSchedule(const Schedule& schedule);

// The learning rate of the update after `step` updates. With lr the schedule's, t the steps after the warm-up and T = total_steps -
// warmup_steps, where t is at most T:
//
//   constant   lr
//   linear     lr * (1 - (1 - end_factor) * t / T)                      end_factor 0
//   cosine     min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2       min_lr 0
//   step       lr * gamma ^ (t / step_size, rounded down), or to the power of the number of `milestones`
//              that t has reached                                       gamma 0.1, step_size T / 3 rounded up
//   factors    lr * factors[step]; the last one goes on
//   one_cycle  from lr / div_factor up to lr in the first pct_start * total_steps, then down to
//              lr / div_factor / final_div_factor, both along a cosine
//              pct_start 0.3 (or warmup_steps / total_steps), div_factor 25, final_div_factor 1e4
//
// These are torch.optim.lr_scheduler's LinearLR, CosineAnnealingLR, StepLR, MultiStepLR, LambdaLR and OneCycleLR. Except in one_cycle, the
// first warmup_steps rise linearly from warmup_start * lr (default 0) to lr, like LinearLR in a SequentialLR. linear, cosine and one_cycle
// need total_steps; step needs that or step_size. Throws like CheckSchedule.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace gradloom

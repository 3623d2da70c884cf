// The learning rate of the C table.
#include <cmath>

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/session/schedule.h"

namespace gradloom::api {
namespace {

GradloomStatus* SetLearningRate(GradloomSession* session, double lr) {
  return Guarded([&] {
    const Call call(session);
    if (!std::isfinite(lr)) throw Error(ErrorCode::kConfig, "the learning rate must be finite");
    call->set_learning_rate(lr);
  });
}

GradloomStatus* GetLearningRate(GradloomSession* session, double* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = Call(session)->learning_rate(); });
}

void Follow(const Call& call) {
  const GradloomSession& handle = call.handle();
  call->set_learning_rate(LearningRate(*handle.schedule, call->step() - handle.schedule_start));
}

GradloomStatus* RegisterLinearLRScheduler(GradloomSession* session, int64_t warmup_steps, int64_t total_steps, double initial_lr) {
  return Guarded([&] {
    const Call call(session);
    if (!std::isfinite(initial_lr) || initial_lr < 0)
      throw Error(ErrorCode::kConfig, "the initial learning rate must be finite and at least 0");
    Schedule schedule{"linear", initial_lr, {}};
    schedule.attributes.set("total_steps", total_steps);
    schedule.attributes.set("warmup_steps", warmup_steps);
    CheckSchedule(schedule);
    call.handle().schedule = std::move(schedule);
    call.handle().schedule_start = call->step();
    Follow(call);
  });
}

GradloomStatus* SchedulerStep(GradloomSession* session) {
  return Guarded([&] {
    const Call call(session);
    if (!call.handle().schedule) {
      throw Error(ErrorCode::kConfig, "no learning rate scheduler is registered", "",
                  "call RegisterLinearLRScheduler, or set schedule.name when compiling");
    }
    Follow(call);
  });
}

}  // namespace

void AddLearningRates(GradloomApi& api) {
  api.SetLearningRate = SetLearningRate;
  api.GetLearningRate = GetLearningRate;
  api.RegisterLinearLRScheduler = RegisterLinearLRScheduler;
  api.SchedulerStep = SchedulerStep;
}

}  // namespace gradloom::api

// Steps of the C table and their outputs.
#include <exception>
#include <utility>

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/exec/step_at_exit.h"

namespace gradloom::api {
namespace {

// Called before anything runs: invalidates the shapes handed out for the last run.
void BeginRun(const Call& call) { call.handle().shapes.clear(); }

// `result` is checked here, before anything is changed.
void BeginTraining(const Call& call, const GradloomStepResult* result = nullptr) {
  CheckResult(result);
  call.CheckNotFitting();
  if (call.handle().waited_for) throw Error(ErrorCode::kConfig, "an asynchronous step has not been waited for", "", "call Wait first");
  BeginRun(call);
}

GradloomStatus* Step(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                     GradloomStepResult* result) {
  return Guarded([&] {
    const Call call(session);
    BeginTraining(call, result);
    WriteResult(ResultOf(call->Step(FeedsOf(call, GRADLOOM_TRAIN, names, inputs, num_inputs))), result);
  });
}

// Runs on the session's own thread.
void RunAsync(GradloomSession& handle) noexcept {
  std::exception_ptr error;
  StepResult result;
  try {
    result = handle.session.Step(handle.async_feeds);
  } catch (...) {
    // Not a copy, for which there may be no memory. Wait makes a status of it.
    error = std::current_exception();
  }
  const std::lock_guard lock(handle.async);
  handle.async_result = result;
  handle.async_error = std::move(error);
  handle.running = false;
  handle.ended.notify_all();
}

GradloomStatus* StepAsync(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs) {
  return Guarded([&] {
    const Call call(session);
    BeginTraining(call);
    StepAtExit::CheckMayBegin();
    GradloomSession& handle = call.handle();
    handle.async_feeds = FeedsOf(call, GRADLOOM_TRAIN, names, inputs, num_inputs);
    {
      const std::lock_guard lock(handle.async);
      handle.running = true;
    }
    try {
      handle.background.Start([&handle] { RunAsync(handle); });
    } catch (...) {
      const std::lock_guard lock(handle.async);
      handle.running = false;
      throw;
    }
    handle.waited_for = true;
  });
}

GradloomStatus* Wait(GradloomSession* session, GradloomStepResult* result) {
  return Guarded([&] {
    const Call call(session);
    GradloomSession& handle = call.handle();
    if (!handle.waited_for) throw Error(ErrorCode::kConfig, "no asynchronous step was started", "", "call StepAsync first");
    CheckResult(result);
    handle.waited_for = false;
    handle.async_feeds.clear();
    if (handle.async_error) std::rethrow_exception(std::exchange(handle.async_error, nullptr));
    WriteResult(ResultOf(handle.async_result), result);
  });
}

GradloomStatus* TrainStep(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                          GradloomStepResult* result) {
  return Guarded([&] {
    const Call call(session);
    BeginTraining(call, result);
    WriteResult(ResultOf(call->Accumulate(FeedsOf(call, GRADLOOM_TRAIN, names, inputs, num_inputs))), result);
  });
}

GradloomStatus* OptimizerStep(GradloomSession* session, GradloomStepResult* result) {
  return Guarded([&] {
    const Call call(session);
    BeginTraining(call, result);
    WriteResult(ResultOf(call->Update()), result);
  });
}

GradloomStatus* LazyResetGrad(GradloomSession* session) {
  return Guarded([&] {
    const Call call(session);
    BeginTraining(call);
    call->DropGradients();
  });
}

GradloomStatus* EvalStep(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs,
                         GradloomStepResult* result) {
  return Guarded([&] {
    const Call call(session);
    CheckResult(result);
    BeginRun(call);
    call->Forward(EntryKind::kEval, FeedsOf(call, GRADLOOM_EVAL, names, inputs, num_inputs));
    StepResult made{.loss = call->loss(), .lr = call->learning_rate()};
    made.step = call->step();
    made.batch = call->batch();
    WriteResult(ResultOf(made), result);
  });
}

GradloomStatus* Predict(GradloomSession* session, const char* const* names, const GradloomTensor* inputs, size_t num_inputs) {
  return Guarded([&] {
    const Call call(session);
    BeginRun(call);
    call->Forward(EntryKind::kPredict, FeedsOf(call, GRADLOOM_PREDICT, names, inputs, num_inputs));
  });
}

GradloomStatus* GetOutput(GradloomSession* session, const char* name, GradloomTensor* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    const Call call(session);
    const std::string wanted = TextOf(name, "the name");
    const TensorView view = call->Fetched(wanted);
    // Entries of the map stay valid while others are inserted. Another thread may read a shape that it got before: it is written only in a
    // callback of Fit, where it may be another one.
    Shape& kept = call.handle().shapes[wanted];
    if (kept != view.shape) kept = view.shape;
    *out = TensorOf(view, kept);
  });
}

GradloomStatus* CopyOutput(GradloomSession* session, const char* name, void* buffer, size_t num_bytes) {
  return Guarded([&] {
    const Call call(session);
    CopyOut(call->Fetched(TextOf(name, "the name")), buffer, num_bytes);
  });
}

}  // namespace

void AddSteps(GradloomApi& api) {
  api.Step = Step;
  api.StepAsync = StepAsync;
  api.Wait = Wait;
  api.TrainStep = TrainStep;
  api.OptimizerStep = OptimizerStep;
  api.LazyResetGrad = LazyResetGrad;
  api.EvalStep = EvalStep;
  api.Predict = Predict;
  api.GetOutput = GetOutput;
  api.CopyOutput = CopyOutput;
}

}  // namespace gradloom::api

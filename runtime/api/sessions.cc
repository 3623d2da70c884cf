// Sessions of the C table: creation, release and devices.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "runtime/api/guard.h"
#include "runtime/api/properties.h"
#include "runtime/api/table.h"

namespace gradloom::api {
namespace {

SessionOptions OptionsFor(const GradloomPlan& plan, const GradloomSessionOptions& given, const GradloomCheckpoint* checkpoint) {
  SessionOptions options{.seed = given.seed, .source = plan.source};
  options.executor.check_numerics = given.check_numerics != 0;
  Array(given.ordinals, given.num_ordinals, "the array of device ordinals");
  options.executor.ordinals.assign(given.ordinals, given.ordinals + given.num_ordinals);
  if (checkpoint != nullptr && checkpoint->checkpoint.has_manifest()) options.seed = checkpoint->checkpoint.manifest().seed;
  return options;
}

// Parameters, then statistics.
void ListStates(const Plan& plan, GradloomSession& handle) {
  for (const StateKind kind : {StateKind::kParameter, StateKind::kStatistic}) {
    for (const StateTensor& state : plan.state) {
      if (state.kind == kind) handle.states.push_back({state.name, state.dtype, state.shape, -1});
    }
    if (kind == StateKind::kParameter) handle.num_parameters = handle.states.size();
  }
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kAverage) handle.averages.push_back({state.name, state.dtype, state.shape, -1});
  }
}

GradloomStatus* CreateTrainingSession(const GradloomPlan* plan, const GradloomSessionOptions* options, const GradloomCheckpoint* checkpoint,
                                      GradloomSession** out) {
  return Guarded([&] {
    GradloomSession*& handle = Out(out);
    const GradloomSessionOptions given = OptionsOf(options);
    NotNull(plan, "the plan");
    auto made = std::make_unique<GradloomSession>(Session(plan->plan, OptionsFor(*plan, given, checkpoint)));
    for (size_t i = 0; i < 3; ++i) made->inputs[i] = plan->inputs[i];
    made->identity = IdentityOf(*plan->plan);
    ListStates(*plan->plan, *made);
    if (checkpoint != nullptr) {
      checkpoint->checkpoint.Restore(made->session, made->identity, given.any_plan != 0);
      if (checkpoint->checkpoint.has_manifest()) LoadProperties(checkpoint->checkpoint.manifest(), *made);
    }
    handle = made.release();
  });
}

void ReleaseTrainingSession(GradloomSession* session) {
  // The threads that it would end are not in a child of its process.
  if (session == nullptr || session->forks != ForkCount()) return;
  const CallersDevice keep;
  {
    // Calls of other threads end first. This thread has one only in a callback of Fit, which needs the session once more.
    const std::lock_guard waited(session->calls);
    if (session->fitting) return;
  }
  // Those that have waited for the lock.
  while (session->begun > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  session->background.Wait();
  delete session;
}

GradloomStatus* GetPosition(GradloomSession* session, int64_t* step, int64_t* batch) {
  return Guarded([&] {
    const Call call(session);
    if (step != nullptr) *step = call->step();
    if (batch != nullptr) *batch = call->batch();
  });
}

GradloomStatus* SetSeed(GradloomSession* session, int64_t seed) {
  return Guarded([&] { Call(session)->set_seed(seed); });
}

GradloomStatus* GetDeviceMemory(GradloomSession* session, size_t device, GradloomDeviceMemory* out) {
  return Guarded([&] {
    const Call call(session);
    NotNull(out, "the output pointer for the result");
    const std::vector<DeviceMemory> memory = call->device_memory();
    if (device >= memory.size()) {
      throw Error(ErrorCode::kConfig,
                  "device index " + std::to_string(device) + " is out of range: there are " + std::to_string(memory.size()));
    }
    const DeviceMemory& held = memory[device];
    GradloomDeviceMemory made{};
    std::snprintf(made.device, sizeof made.device, "%s", held.device.c_str());
    made.allocated_bytes = held.allocated;
    made.cached_bytes = held.cached;
    made.free_bytes = held.free;
    WriteResult(made, out);
  });
}

GradloomStatus* GetNonFiniteOrigin(GradloomSession* session, GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    const Call call(session);
    if (!call->checks_numerics()) {
      throw Error(ErrorCode::kConfig, "the session does not look at the numbers of its steps", "",
                  "create it with check_numerics, from the last checkpoint, and repeat the steps");
    }
    text = new GradloomText{call->NonFiniteOrigin(call->NonFiniteState())};
  });
}

GradloomStatus* ReleaseMemory(GradloomSession* session) {
  return Guarded([&] {
    const Call call(session);
    call.CheckNotFitting();
    call->ReleaseMemory();
  });
}

}  // namespace

void AddSessions(GradloomApi& api) {
  api.CreateTrainingSession = CreateTrainingSession;
  api.ReleaseTrainingSession = ReleaseTrainingSession;
  api.GetPosition = GetPosition;
  api.SetSeed = SetSeed;
  api.GetDeviceMemory = GetDeviceMemory;
  api.ReleaseMemory = ReleaseMemory;
  api.GetNonFiniteOrigin = GetNonFiniteOrigin;
}

}  // namespace gradloom::api

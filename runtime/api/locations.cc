// Where tensors live.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "runtime/api/gradients.h"
#include "runtime/api/guard.h"
#include "runtime/api/table.h"

namespace gradloom::api {
namespace {

void SetDevice(const Call& call, size_t rank, GradloomLocation& location) {
  std::snprintf(location.device, sizeof location.device, "%s", call->device_memory().at(rank).device.c_str());
}

GradloomLocation OfState(const Call& call, const StateTensor& state) {
  const Plan& plan = call->plan();
  GradloomLocation location{};
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    if (!state.in_place(plan.PlaceOf(rank))) continue;
    if (location.num_devices++ > 0) continue;
    SetDevice(call, rank, location);
    location.address = call->executor().state().at(static_cast<int>(rank), state.offset);
  }
  location.row_major = state.layout.plain() ? 1 : 0;
  location.bytes = state.bytes;
  return location;
}

GradloomLocation OfOutput(const Call& call, const std::string& name) {
  const std::optional<DeviceTensor> on_device = call->FetchedOnDevice(name);
  const TensorView view = on_device ? on_device->view : call->Fetched(name);
  GradloomLocation location{};
  location.bytes = view.bytes();
  location.row_major = 1;
  const Plan& plan = call->plan();
  const Entry& entry = plan.entries[static_cast<size_t>(call->last_entry())];
  const auto fetch = static_cast<size_t>(
      std::find_if(entry.fetches.begin(), entry.fetches.end(), [&](const Fetch& f) { return f.name == name; }) - entry.fetches.begin());
  size_t holders = 0, first = 0;
  for (size_t rank = entry.ranks.size(); rank-- > 0;) {
    if (FetchedBuffer(entry, rank, fetch) < 0) continue;
    ++holders;
    first = rank;
  }
  SetDevice(call, first, location);
  const bool divided = entry.fetches[fetch].batch_axis >= 0 && holders > 1;
  location.num_devices = divided ? 0 : static_cast<int32_t>(holders);
  if (on_device || (!divided && plan.targets.front().device == DeviceKind::kCpu)) location.address = view.data;
  return location;
}

GradloomStatus* GetLocation(GradloomSession* session, GradloomTensorKind kind, const char* name, GradloomLocation* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    const Call call(session);
    const std::string wanted = TextOf(name, "the name");
    const Plan& plan = call->plan();
    CheckKind(kind);
    if (kind == GRADLOOM_OUTPUT) return WriteResult(OfOutput(call, wanted), out);
    WriteResult(OfState(call, kind == GRADLOOM_STATE ? StateOf(plan, wanted) : GradientState(plan, wanted)), out);
  });
}

}  // namespace

const StateTensor& StateOf(const Plan& plan, const std::string& name) {
  const int index = plan.FindState(name);
  if (index < 0) throw Error(ErrorCode::kConfig, "the plan has no state '" + Escaped(name) + "'");
  return plan.state[static_cast<size_t>(index)];
}

void CheckKind(GradloomTensorKind kind) {
  if (kind != GRADLOOM_STATE && kind != GRADLOOM_GRADIENT && kind != GRADLOOM_OUTPUT)
    throw Error(ErrorCode::kConfig, "unknown kind of tensor " + std::to_string(kind), "",
                "use GRADLOOM_STATE, GRADLOOM_GRADIENT or GRADLOOM_OUTPUT");
}

void AddLocations(GradloomApi& api) { api.GetLocation = GetLocation; }

}  // namespace gradloom::api

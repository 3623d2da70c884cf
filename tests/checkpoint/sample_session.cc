#include "tests/checkpoint/sample_session.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/base/checked.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

constexpr DType kStateTypes[] = {DType::kBool,    DType::kUint8,   DType::kInt8,    DType::kUint16, DType::kInt16,
                                 DType::kInt32,   DType::kUint32,  DType::kInt64,   DType::kUint64, DType::kFloat16,
                                 DType::kFloat32, DType::kFloat64, DType::kBfloat16};

void AddState(Plan& plan, const std::string& name, StateKind kind, DType dtype, const Shape& shape, int parameter = -1) {
  StateTensor state;
  state.name = name;
  state.kind = kind;
  state.dtype = dtype;
  state.shape = shape;
  state.parameter = parameter;
  state.bytes = shape.elements() * DTypeBytes(dtype);
  state.offset = plan.places[0].state_bytes;
  plan.places[0].state_bytes += AlignUp(state.bytes, kAlignmentBytes);
  plan.state.push_back(state);
}

Tensor SampleValue(const StateTensor& state, int64_t step) {
  Tensor value(state.dtype, state.shape);
  auto* bytes = static_cast<unsigned char*>(value.data());
  const uint64_t salt = std::hash<std::string>()(state.name);
  for (int64_t i = 0; i < value.bytes(); ++i) {
    const uint64_t mixed = Mix64(salt ^ static_cast<uint64_t>(step) << 32 ^ static_cast<uint64_t>(i));
    // Arbitrary bits: some floating-point values are NaN, which must survive as well.
    bytes[i] = static_cast<unsigned char>(state.dtype == DType::kBool ? mixed & 1 : mixed);
  }
  return value;
}

}  // namespace

Plan SamplePlan() {
  Plan plan;
  plan.targets = {{DeviceKind::kCpu, "any", 1}};
  plan.model = {"sample", "0123456789abcdef", ""};
  plan.schedule = {"cosine", 0.125, {{"total_steps", int64_t{100}}}};
  for (DType dtype : kStateTypes) AddState(plan, "state/" + std::string(DTypeName(dtype)), StateKind::kStatistic, dtype, {3, 5});
  AddState(plan, "fc.weight", StateKind::kParameter, DType::kFloat32, {16, 9});
  AddState(plan, "fc.weight/momentum_buffer", StateKind::kOptimizer, DType::kFloat32, {16, 9}, static_cast<int>(plan.state.size()) - 1);
  AddState(plan, "scalar", StateKind::kStatistic, DType::kInt64, {});
  AddState(plan, "empty", StateKind::kParameter, DType::kFloat32, {0, 4});
  AddState(plan, "Größe \"x\"\n", StateKind::kParameter, DType::kFloat32, {2});
  return plan;
}

Session SampleSession(int64_t seed) { return Session(std::make_shared<const Plan>(SamplePlan()), {.seed = seed}); }

void SetSampleState(Session& session, int64_t step) {
  for (const StateTensor& state : session.plan().state) session.Set(state.name, SampleValue(state, step).view());
  session.set_position(step, 3 * step);
}

std::map<std::string, std::string> BitsOf(const Session& session) {
  std::map<std::string, std::string> bits;
  for (const StateTensor& state : session.plan().state) {
    const Tensor value = session.Get(state.name);
    bits.emplace(state.name, std::string(static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes())));
  }
  return bits;
}

std::map<std::string, std::string> SampleBits(int64_t step) {
  Session session = SampleSession();
  SetSampleState(session, step);
  return BitsOf(session);
}

Restored RestoreNewest(const std::string& folder) {
  Restored restored;
  restored.found = FindNewestCheckpoint(folder);
  if (!restored.found.checkpoint) {
    ADD_FAILURE() << "no checkpoint loads in " << folder;
    return restored;
  }
  Session session = SampleSession();
  restored.found.checkpoint->Restore(session, IdentityOf(SamplePlan()));
  restored.step = session.step();
  restored.bits = BitsOf(session);
  return restored;
}

}  // namespace gradloom

// Plans of the C table.
#include "runtime/api/plans.h"

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/plan/memory_json.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom::api {

GradloomStatus* LoadPlanWith(ProvePlan prove, const char* path, GradloomPlan** out) {
  return Guarded([&] {
    GradloomPlan*& handle = Out(out);
    auto plan = std::make_shared<const Plan>(ReadPlan(TextOf(path, "the path")));
    prove(*plan);
    handle = PlanHandle(std::move(plan)).release();
  });
}

GradloomStatus* LoadPlanFromBufferWith(ProvePlan prove, const void* bytes, size_t num_bytes, GradloomPlan** out) {
  return Guarded([&] {
    GradloomPlan*& handle = Out(out);
    const char* const data = &NotNull(static_cast<const char*>(bytes), "the buffer");
    auto plan = std::make_shared<const Plan>(ReadPlanFrom({data, num_bytes}, "plan in memory"));
    prove(*plan);
    handle = PlanHandle(std::move(plan)).release();
  });
}

namespace {

void Prove(const Plan& plan) { VerifyOrThrow(plan); }

GradloomStatus* LoadPlan(const char* path, GradloomPlan** out) { return LoadPlanWith(Prove, path, out); }

GradloomStatus* LoadPlanFromBuffer(const void* bytes, size_t num_bytes, GradloomPlan** out) {
  return LoadPlanFromBufferWith(Prove, bytes, num_bytes, out);
}

GradloomStatus* SavePlan(const GradloomPlan* plan, const char* path) {
  return Guarded([&] { WritePlan(*NotNull(plan, "the plan").plan, TextOf(path, "the path")); });
}

void ReleasePlan(GradloomPlan* plan) { delete plan; }

GradloomStatus* DescribePlan(const GradloomPlan* handle, GradloomDescription what, GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    const Plan& plan = *NotNull(handle, "the plan").plan;
    switch (what) {
      case GRADLOOM_PLAN_TEXT: text = new GradloomText{PlanText(plan)}; return;
      case GRADLOOM_PLAN_MEMORY_JSON: text = new GradloomText{MemoryJson(plan, PlanHash(plan))}; return;
      case GRADLOOM_PLAN_NOTES: text = new GradloomText{handle->notes}; return;
      default: throw Error(ErrorCode::kConfig, "unknown description of a plan " + std::to_string(what), "", "GRADLOOM_PLAN_TEXT and so on");
    }
  });
}

GradloomStatus* GetPlanProperty(const GradloomPlan* plan, const char* key, const char** out) {
  return Guarded([&] {
    Out(out);
    const auto& properties = NotNull(plan, "the plan").plan->properties;
    const auto found = properties.find(TextOf(key, "the key"));
    if (found != properties.end()) *out = found->second.c_str();
  });
}

GradloomStatus* GetPlanDeviceCount(const GradloomPlan* plan, size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(plan, "the plan").plan->num_ranks(); });
}

// Throws Error(kConfig).
const TensorFacts& FactsAt(const std::vector<TensorFacts>& list, size_t index) {
  if (index < list.size()) return list[index];
  throw Error(ErrorCode::kConfig, "tensor index " + std::to_string(index) + " is out of range: there are " + std::to_string(list.size()));
}

GradloomStatus* GetInputCount(const GradloomPlan* plan, GradloomEntry entry, size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(plan, "the plan").inputs[EntryIndex(entry)].size(); });
}

GradloomStatus* GetInputInfo(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    WriteResult(InfoOf(FactsAt(NotNull(plan, "the plan").inputs[EntryIndex(entry)], index)), out);
  });
}

GradloomStatus* GetOutputCount(const GradloomPlan* plan, GradloomEntry entry, size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(plan, "the plan").outputs[EntryIndex(entry)].size(); });
}

GradloomStatus* GetOutputInfo(const GradloomPlan* plan, GradloomEntry entry, size_t index, GradloomTensorInfo* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    WriteResult(InfoOf(FactsAt(NotNull(plan, "the plan").outputs[EntryIndex(entry)], index)), out);
  });
}

}  // namespace

void AddPlans(GradloomApi& api) {
  api.LoadPlan = LoadPlan;
  api.LoadPlanFromBuffer = LoadPlanFromBuffer;
  api.SavePlan = SavePlan;
  api.ReleasePlan = ReleasePlan;
  api.DescribePlan = DescribePlan;
  api.GetPlanProperty = GetPlanProperty;
  api.GetPlanDeviceCount = GetPlanDeviceCount;
  api.GetInputCount = GetInputCount;
  api.GetInputInfo = GetInputInfo;
  api.GetOutputCount = GetOutputCount;
  api.GetOutputInfo = GetOutputInfo;
}

}  // namespace gradloom::api

// Parameters of the C table that are shared among processes.
#include "runtime/api/guard.h"
#include "runtime/api/table.h"

namespace gradloom::api {
namespace {

GradloomStatus* ShareParameters(GradloomSession* session, const char* name) {
  return Guarded([&] {
    const Call call(session);
    std::unique_ptr<ParameterShare> made;
    if (name != nullptr) made = std::make_unique<ParameterShare>(*call, name);
    call.handle().share = std::move(made);
  });
}

GradloomStatus* AttachParameters(const char* name, GradloomAttached** out) {
  return Guarded([&] {
    GradloomAttached*& handle = Out(out);
    handle = new GradloomAttached{AttachedParameters(TextOf(name, "the name"))};
  });
}

void ReleaseAttached(GradloomAttached* attached) { delete attached; }

GradloomStatus* GetAttachedCount(const GradloomAttached* attached, size_t* out) {
  return Guarded(
      [&] { NotNull(out, "the output pointer for the result") = NotNull(attached, "the handle").parameters.parameters().size(); });
}

// Throws Error(kConfig).
const AttachedParameters::Parameter& At(const GradloomAttached* attached, size_t index) {
  const auto& parameters = NotNull(attached, "the handle").parameters.parameters();
  if (index >= parameters.size())
    throw Error(ErrorCode::kConfig,
                "parameter index " + std::to_string(index) + " is out of range: there are " + std::to_string(parameters.size()));
  return parameters[index];
}

GradloomStatus* GetAttached(const GradloomAttached* attached, size_t index, const char** name, GradloomTensor* out) {
  return Guarded([&] {
    const AttachedParameters::Parameter& parameter = At(attached, index);
    NotNull(name, "the output pointer for the name");
    NotNull(out, "the output pointer for the tensor");
    *name = parameter.name.c_str();
    *out = TensorOf({parameter.dtype, parameter.shape, parameter.stored}, parameter.shape);
    if (!parameter.layout.plain()) out->data = nullptr;
  });
}

GradloomStatus* CopyAttached(const GradloomAttached* attached, size_t index, void* buffer, size_t num_bytes) {
  return Guarded([&] { CopyOut(At(attached, index).Get().view(), buffer, num_bytes); });
}

}  // namespace

void AddSharing(GradloomApi& api) {
  api.ShareParameters = ShareParameters;
  api.AttachParameters = AttachParameters;
  api.ReleaseAttached = ReleaseAttached;
  api.GetAttachedCount = GetAttachedCount;
  api.GetAttached = GetAttached;
  api.CopyAttached = CopyAttached;
}

}  // namespace gradloom::api

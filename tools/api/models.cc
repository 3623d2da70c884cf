#include "runtime/api/guard.h"
#include "tools/api/compiler_table.h"
#include "tools/api/handles.h"
#include "tools/run/options/named_devices.h"

namespace gradloom::api {
namespace {

LoadOptions LoadOptionsFor(const GradloomLoadOptions& given) {
  LoadOptions options;
  if (given.external_dir != nullptr) options.external_dir = given.external_dir;
  options.threads = ThreadsOfProcess(1);
  return options;
}

GradloomModel* Handle(Model model, std::string path) {
  std::vector<std::string> inputs = model.input_names();
  return new GradloomModel{std::move(model), std::move(path), std::move(inputs)};
}

GradloomStatus* LoadModel(const char* path, const GradloomLoadOptions* options, GradloomModel** out) {
  return Guarded([&] {
    GradloomModel*& handle = Out(out);
    const GradloomLoadOptions given = OptionsOf(options);
    const std::string name = TextOf(path, "the path");
    handle = Handle(Model::Load(name, LoadOptionsFor(given)), name);
  });
}

GradloomStatus* LoadModelFromBuffer(const void* bytes, size_t num_bytes, const GradloomLoadOptions* options, GradloomModel** out) {
  return Guarded([&] {
    GradloomModel*& handle = Out(out);
    const GradloomLoadOptions given = OptionsOf(options);
    const char* const data = &NotNull(static_cast<const char*>(bytes), "the buffer");
    const std::string name = given.name == nullptr ? "model" : given.name;
    const LoadOptions loading = LoadOptionsFor(given);
    const std::string_view all(data, num_bytes);
    handle = Handle(name.ends_with(".onnxtxt") ? Model::FromText(all, name, loading) : Model::FromBytes(all, name, loading), "");
  });
}

GradloomStatus* GetModelInputCount(const GradloomModel* model, size_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(model, "the model").inputs.size(); });
}

GradloomStatus* GetModelInputName(const GradloomModel* model, size_t index, const char** out) {
  return Guarded([&] {
    Out(out);
    const std::vector<std::string>& inputs = NotNull(model, "the model").inputs;
    if (index >= inputs.size())
      throw Error(ErrorCode::kConfig,
                  "input index " + std::to_string(index) + " is out of range: the number of inputs is " + std::to_string(inputs.size()));
    *out = inputs[index].c_str();
  });
}

void ReleaseModel(GradloomModel* model) { delete model; }

}  // namespace

void AddModels(GradloomApi& api) {
  api.LoadModel = LoadModel;
  api.LoadModelFromBuffer = LoadModelFromBuffer;
  api.GetModelInputCount = GetModelInputCount;
  api.GetModelInputName = GetModelInputName;
  api.ReleaseModel = ReleaseModel;
}

}  // namespace gradloom::api

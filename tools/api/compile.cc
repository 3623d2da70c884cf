// Compiles a model with settings to a plan, with the same code as the command.
#include <nlohmann/json.hpp>

#include "runtime/api/guard.h"
#include "runtime/api/plans.h"
#include "tools/api/compiler_table.h"
#include "tools/api/compiling_source.h"
#include "tools/api/default_devices.h"
#include "tools/api/handles.h"
#include "tools/config/keys.h"
#include "tools/run/compile_model.h"
#include "tools/run/sound_plan.h"
#include "tools/run/views/obstacles.h"

namespace gradloom::api {
namespace {

Configuration ConfigurationFor(const GradloomCompileOptions& given, const GradloomModel& model) {
  Configuration configuration;
  if (given.config_path != nullptr) configuration.ReadFile(given.config_path);
  if (given.config_text != nullptr) configuration.ReadText(given.config_text, "config_text");
  Array(given.settings, given.num_settings, "the array of settings");
  for (size_t i = 0; i < given.num_settings; ++i) {
    configuration.SetAssignment(TextOf(given.settings[i].key, "the key of a setting") + "=" +
                                TextOf(given.settings[i].value, "the value of a setting"));
  }
  if (const std::string devices = DefaultDevices(); !devices.empty() && !configuration.is_set("devices.use"))
    configuration.SetAssignment("devices.use=" + devices);
  // A configuration takes '~' and '$' at the beginning of a path for something that a shell would expand.
  const bool marked = model.path.starts_with('~') || model.path.starts_with('$');
  if (!model.path.empty()) configuration.Decide("model.path", (marked ? "./" : "") + model.path, "the model that is compiled");
  return configuration;
}

// One line for each setting that has no effect because only a run of the command uses it. Files are not looked at: they may configure both.
std::string UnusedSettings(const GradloomCompileOptions& given) {
  std::string notes;
  for (size_t i = 0; i < given.num_settings; ++i) {
    const Key* const key = FindKey(given.settings[i].key);
    if (key == nullptr || (key->uses & (kUseRecipe | kUsePlan)) != 0) continue;
    notes += "warning the setting " + std::string(key->name) + " has no effect on a plan: only `gradloom train` uses it\n";
  }
  return notes;
}

EntryRequests RequestsOf(const GradloomCompileOptions& given) {
  constexpr uint32_t kAll =
      GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT | GRADLOOM_WITH_GRADIENTS | GRADLOOM_WITH_OUTPUTS | GRADLOOM_WITH_NOTHING_ELSE;
  if ((given.with & ~kAll) != 0) throw Error(ErrorCode::kConfig, "`with` has unknown bits", "", "combine GRADLOOM_WITH_EVAL and the like");
  EntryRequests requests;
  Array(given.batches, given.num_batches, "the array of batch sizes");
  requests.batches.assign(given.batches, given.batches + given.num_batches);
  for (const int64_t batch : requests.batches) {
    if (batch < 1) throw Error(ErrorCode::kConfig, "a batch size must be at least 1, got " + std::to_string(batch));
  }
  const uint32_t with = given.with != 0 ? given.with : GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT;
  requests.eval = (with & GRADLOOM_WITH_EVAL) != 0;
  requests.predict = (with & GRADLOOM_WITH_PREDICT) != 0;
  requests.gradients = (with & GRADLOOM_WITH_GRADIENTS) != 0;
  requests.outputs = (with & GRADLOOM_WITH_OUTPUTS) != 0;
  Array(given.input_gradients, given.num_input_gradients, "the array of inputs with gradients");
  for (size_t i = 0; i < given.num_input_gradients; ++i)
    requests.input_gradients.push_back(TextOf(given.input_gradients[i], "the name of an input with a gradient"));
  return requests;
}

GradloomStatus* CompileTo(const GradloomModel* model, const GradloomCompileOptions* options, GradloomPlan** out) {
  return Guarded([&] {
    GradloomPlan*& handle = Out(out);
    const GradloomCompileOptions given = OptionsOf(options);
    const Configuration configuration = ConfigurationFor(given, NotNull(model, "the model"));
    const EntryRequests requests = RequestsOf(given);
    const Model trained = configuration.Switch("model.no_restore") ? model->model : model->model.WithParametersRestored();
    CompiledModel made;
    const auto compile = [&] { made = CompileModel(configuration, trained, requests); };
    // The list of obstacles is made from the model file.
    model->path.empty() ? compile() : ReportingAllObstacles(configuration, compile);
    std::unique_ptr<GradloomPlan> plan = PlanHandle(std::make_shared<const Plan>(std::move(made.plan)));
    made.options.control = {};
    plan->source = std::make_shared<CompilingSource>(trained, std::move(made.options));
    plan->notes = UnusedSettings(given);
    for (const std::string& note : made.notes) plan->notes += note + "\n";
    for (const std::string& warning : made.report.warnings) plan->notes += "warning " + warning + "\n";
    handle = plan.release();
  });
}

GradloomStatus* GetSettings(GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    text = new GradloomText{Configuration().ToJson().dump()};
  });
}

GradloomStatus* LoadPlan(const char* path, GradloomPlan** out) { return LoadPlanWith(ProveSound, path, out); }

GradloomStatus* LoadPlanFromBuffer(const void* bytes, size_t num_bytes, GradloomPlan** out) {
  return LoadPlanFromBufferWith(ProveSound, bytes, num_bytes, out);
}

}  // namespace

void AddCompile(GradloomApi& api) {
  api.GetSettings = GetSettings;
  api.Compile = CompileTo;
  api.LoadPlan = LoadPlan;
  api.LoadPlanFromBuffer = LoadPlanFromBuffer;
}

}  // namespace gradloom::api

#include "tools/run/views/placed_model.h"

#include <vector>

#include "compiler/compile.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/recipe.h"

namespace gradloom {

DevicePlacement PlacementOf(const Plan& plan, const std::map<std::string, Tensor>& values, const Configuration& configuration) {
  const Model model = Model::FromInfo(plan.model, values, ModelForm::kAsWritten);
  CompileOptions options;
  options.import = ImportOptionsOf(configuration);
  const Entry& entry = plan.entries.front();
  options.import.batch = entry.batch;
  std::vector<std::string> notes;
  const ImportedGraph imported = Import(model, options.import);
  const Graph& graph = *imported.graph;
  options.recipe = RecipeOf(configuration, model, graph, 0, notes);
  WeighClassesAsTrained(configuration, plan.losses, options.recipe);
  const auto refuse_gathering = [] {
    throw Error(ErrorCode::kUnsupported, "ONNX's annotations cannot express a placement that gathers samples on one device", "--placement",
                "train with --place, or export without --placement");
  };
  if (options.recipe.gather_to >= 0) refuse_gathering();
  options.recipe.schedule = plan.schedule;
  options.entries = {{entry.kind == EntryKind::kAccumulate ? EntryKind::kStep : entry.kind, entry.batch}};
  CompileReport report;
  Compile(model, options, &report);
  if (report.tail) refuse_gathering();
  DevicePlacement placement{
      .devices = static_cast<int>(plan.num_ranks()), .stages = report.stages, .of_node = report.placed, .batch_axes = {}};
  if (options.recipe.device != DeviceKind::kCpu) placement.device = "cuda";
  if (placement.devices == placement.stages) return placement;
  const auto add = [&](const std::string& name, int axis) {
    // Only axis 0 is an axis of samples in other tools.
    if (axis == 0) placement.batch_axes.emplace(name, axis);
  };
  for (size_t i = 0; i < imported.batch_axes.size(); ++i) add(graph.value(graph.inputs[i]).name, imported.batch_axes[i]);
  for (const ValueId id : graph.outputs) {
    const auto named = imported.output_names.find(id);
    const Shape& shape = graph.value(id).shape;
    add(named != imported.output_names.end() ? named->second : graph.value(id).name,
        shape.rank() > 0 && shape[0] == imported.batch ? 0 : -1);
  }
  return placement;
}

}  // namespace gradloom

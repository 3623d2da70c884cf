#include "compiler/passes/step_params.h"

#include <string>

#include "compiler/passes/program_plan.h"

namespace gradloom {

ValueId StepParam(Graph& graph, std::string_view name) {
  const ValueId known = graph.Find(name);
  if (known != kNoValue) return known;
  const ValueId id = graph.AddValue(std::string(name), name == kStepLr ? DType::kFloat32 : DType::kInt64, Shape{}, Role::kInput);
  graph.inputs.push_back(id);
  return id;
}

}  // namespace gradloom

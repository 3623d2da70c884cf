#include "compiler/passes/update/step_params.h"

#include <string>

#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

ValueId StepParam(Graph& graph, std::string_view name) {
  const ValueId known = graph.Find(name);
  if (known != kNoValue) return known;
  const DType dtype = name == kStepLr ? DType::kFloat32 : name == kStepLr64 ? DType::kFloat64 : DType::kInt64;
  const ValueId id = graph.AddValue(std::string(name), dtype, Shape{}, Role::kInput);
  graph.inputs.push_back(id);
  return id;
}

}  // namespace gradloom

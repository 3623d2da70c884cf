#include "compiler/initial_values.h"

#include <map>

#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/seed_random.h"

namespace gradloom {

std::vector<std::pair<std::string, Tensor>> InitialValues(const Model& model, int training_info) {
  ImportOptions options;
  options.training_info = training_info;
  options.initialization = true;
  const ImportedGraph imported = Import(model, options);
  Graph& graph = *imported.graph;
  if (!graph.inputs.empty()) {
    throw Error(ErrorCode::kConfig, "the file's initialization graph must not have inputs",
                Escaped(model.path(), 4096) + "  '" + Escaped(graph.value(graph.inputs[0]).name) + "'");
  }
  const OnnxTypeRules rules;
  GraphBuilder builder(graph, rules);
  SeedRandom(builder);
  std::map<ValueId, Tensor> step;  // seed and batch number
  for (ValueId id : graph.inputs) step.emplace(id, Tensor(graph.value(id).dtype, graph.value(id).shape));
  std::vector<ValueId> wanted;
  for (const auto& [name, id] : imported.initial) wanted.push_back(id);
  const std::vector<Tensor> made = Interpret(graph, step, wanted);
  std::vector<std::pair<std::string, Tensor>> values;
  for (size_t i = 0; i < made.size(); ++i) values.emplace_back(imported.initial[i].first, made[i]);
  return values;
}

}  // namespace gradloom

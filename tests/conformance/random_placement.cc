#include "tests/conformance/random_placement.h"

#include <random>
#include <set>
#include <string>

namespace gradloom {

std::vector<PlaceRule> RandomPlacement(const Model& model, CompileOptions options, int stages, uint64_t seed) {
  options.recipe.devices = 1;
  std::set<std::string> kept, imported;
  for (const Program& program : Compile(model, options).programs) {
    for (const Instruction& instruction : program.instructions) kept.insert(instruction.origin);
  }
  options.import.batch = options.entries.front().batch;
  const ImportedGraph graph = Import(model, options.import);
  for (const Node& node : graph.graph->nodes) imported.insert(node.origin);
  std::vector<PlaceRule> rules;
  std::mt19937_64 random(seed);
  for (const std::string& name : kept) {
    if (!name.empty() && imported.contains(name)) rules.push_back({name, static_cast<int>(random() % static_cast<uint64_t>(stages))});
  }
  if (!rules.empty()) rules.back().stage = stages - 1;
  return rules;
}

}  // namespace gradloom

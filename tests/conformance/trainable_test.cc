// Compares the initializers that are trained by default with the parameters of the modules that the recorded files were exported from.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/gradient/fake_quantize.h"
#include "compiler/passes/update/choose_trainable.h"
#include "tests/conformance/run_case.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Tensors that nothing in the file distinguishes from the other kind: coordinate grids, and scalars whose names belong to no module.
const std::map<std::string, Names>& Mistaken() {
  static const std::map<std::string, Names> cases = {
      {"block_spatial_transformer", {"view_4"}},
      {"resize_linear_1d", {"clamp_2"}},
      {"objective_warped_dynamo18", {"_to_copy", "view_3"}},
      {"kan_splines", {"grid"}},
      {"contrastive", {"scale"}},
      {"extent_assigned", {"scale"}},
      {"extent_detector", {"anchors"}},
      {"matrix_factorisation", {"mean"}},
      {"scalar_parameters", {"gain", "power", "shift"}},
      {"detach_trained_steps_legacy", {"sh", "sx"}},
      {"everyday_many_streams_dynamo25_plain", {"small"}},
      {"operator_trained_hot", {"u"}},
      {"operator_warped", {"eye"}},
  };
  return cases;
}

std::string Listing(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Names Without(const Names& from, const Names& these) {
  Names rest;
  std::set_difference(from.begin(), from.end(), these.begin(), these.end(), std::inserter(rest, rest.end()));
  return rest;
}

bool Check(const std::string& folder) {
  const TrainingCase recorded = ReadTrainingCase(folder);
  const Model model = Model::Load(recorded.model_path);
  ImportOptions options = ReadingOf(recorded, model);
  options.batch = recorded.batch_sizes.front();
  const ImportedGraph imported = Import(model, options);
  // As the compiler does before it chooses trainable initializers.
  const OnnxTypeRules rules;
  GraphBuilder builder(*imported.graph, rules);
  PassThroughFakeQuantize(builder);
  TrainableOptions by_itself;
  by_itself.node_constants = imported.node_constants;
  by_itself.attributes = imported.names_attributes;
  Names chosen, parameters(recorded.trainable.begin(), recorded.trainable.end());
  for (const auto& [name, why] : ChooseTrainable(*imported.graph, by_itself).trained) chosen.insert(name);
  parameters.insert(recorded.frozen.begin(), recorded.frozen.end());
  if (const auto known = Mistaken().find(recorded.name); known != Mistaken().end()) {
    chosen = Without(chosen, known->second);
    parameters = Without(parameters, known->second);
  }
  if (chosen == parameters) return true;
  std::printf("%s: trained and no parameter: %s; not trained: %s\n", recorded.name.c_str(), Listing(Without(chosen, parameters)).c_str(),
              Listing(Without(parameters, chosen)).c_str());
  return false;
}

int Main(const std::vector<std::string>& roots) {
  int failed = 0, count = 0;
  for (const std::string& root : roots) {
    for (const auto& entry : fs::directory_iterator(root)) {
      if (!fs::exists(entry.path() / "case.json")) continue;
      ++count;
      failed += Check(entry.path().string()) ? 0 : 1;
    }
  }
  std::printf("%d files, %d failed\n", count, failed);
  return failed == 0 && count > 400 ? 0 : 1;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) { return gradloom::Main(std::vector<std::string>(argv + 1, argv + argc)); }

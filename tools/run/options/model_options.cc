#include "tools/run/options/model_options.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/pass_log.h"
#include "tools/screen/shell_word.h"

namespace gradloom {

const std::string& ModelPathOf(const Configuration& configuration) {
  const std::string& path = configuration.Text("model.path");
  if (path.empty())
    throw Error(ErrorCode::kConfig, "no model is given", "", "pass an ONNX file, or a configuration with one: -c gradloom.toml");
  if (path.ends_with(".toml"))
    throw Error(ErrorCode::kConfig, "this is a configuration, not a model", Escaped(path, 4096), "pass it with -c: -c " + ShellWord(path));
  return path;
}

LoadOptions LoadOptionsOf(const Configuration& configuration) {
  LoadOptions options;
  options.external_dir = configuration.Text("model.external_dir");
  options.allow_hardlinks = configuration.Switch("model.allow_hardlinks");
  options.threads = ThreadsOfReading(configuration);
  options.restores_parameters = !configuration.Switch("model.no_restore");
  ModelLimits& limits = options.limits;
  const std::map<std::string, int64_t*> known = {{"nodes", &limits.nodes},
                                                 {"node_inputs", &limits.node_inputs},
                                                 {"name_bytes", &limits.name_bytes},
                                                 {"attribute_elements", &limits.attribute_elements},
                                                 {"fold_bytes", &limits.fold_bytes},
                                                 {"fold_total_bytes", &limits.fold_total_bytes},
                                                 {"value_bytes", &limits.value_bytes},
                                                 {"external_files", &limits.external_files}};
  std::vector<std::string> names;
  for (const auto& [name, limit] : known) names.push_back(name);
  Reading(configuration, "model.limit", [&] {
    for (const auto& [name, values] : configuration.Named("model.limit")) {
      CheckOneOf(name, names, "unknown limit '" + Escaped(name) + "'");
      *known.at(name) = std::stoll(values[0]);
    }
  });
  return options;
}

namespace {

// "4,2,3", "0.5" or "true".
std::vector<double> NumbersOf(const std::string& input, const std::string& text) {
  std::vector<double> numbers;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string word = text.substr(start, end - start);
    numbers.push_back(word == "true" ? 1 : word == "false" ? 0 : ParseNumber(word, "the value of '" + Escaped(input) + "'"));
    start = end + 1;
  }
  return numbers;
}

}  // namespace

ImportOptions ImportOptionsOf(const Configuration& configuration) {
  ImportOptions options;
  options.batch = configuration.Integer("data.batch");
  options.loop_bound = configuration.Integer("model.loop_bound");
  options.outputs = configuration.Texts("model.outputs");
  options.detach = !configuration.Switch("model.no_detach");
  options.detached = configuration.Texts("model.detach");
  for (const auto& [name, values] : configuration.Named("model.shape")) options.shapes[name] = std::stoll(values[0]);
  Reading(configuration, "model.value", [&] {
    for (const auto& [name, values] : configuration.Named("model.value")) options.numbers[name] = NumbersOf(name, values[0]);
  });
  return options;
}

ImportOptions ImportOptionsOf(const Configuration& configuration, const Model& model) {
  ImportOptions options = ImportOptionsOf(configuration);
  if (options.shapes.empty()) return options;
  ImportOptions by_symbol = options;
  by_symbol.batch = 0;
  try {
    for (const OpenExtent& extent : OpenExtents(model, by_symbol)) {
      const auto given = options.shapes.find(extent.symbol);
      if (!extent.is_batch || given == options.shapes.end()) continue;
      if (options.batch == 0) options.batch = given->second;
      if (options.batch == given->second) options.shapes.erase(given);
      break;
    }
  } catch (const Error&) {
    // Another extent is open, or wrong, which the import says; the batch has no number then either.
  }
  return options;
}

PassControl PassControlOf(const Configuration& configuration) {
  PassControl control;
  control.dump_after = configuration.Text("compiler.dump_after");
  control.stop_after = configuration.Text("compiler.stop_after");
  control.disabled = configuration.Texts("compiler.disable_pass");
  control.time_passes = configuration.Switch("compiler.time_passes");
  control.log = &StderrPassLog();
  return control;
}

}  // namespace gradloom

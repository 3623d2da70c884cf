#include "tools/gradloom/data_flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// "name=value" of a flag that may be repeated.
std::pair<std::string, std::string> NameAndValue(const std::string& word, const char* flag) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
    throw Error(ErrorCode::kConfig, std::string(flag) + " '" + Escaped(word) + "' is not NAME=VALUE");
  }
  return {word.substr(0, equals), word.substr(equals + 1)};
}

}  // namespace

void DataFlags::Declare(CLI::App& app) {
  app.add_option("--data", data, "training data: .csv, .csv.gz, .tsv or .npz")->required();
  app.add_option("--eval-data", eval_data, "evaluation data of the same form");
  app.add_option("--eval-split", eval_split, "hold back a share for evaluation: 20%, or tail:20% for the last rows unshuffled");
  app.add_option("--map", map, "INPUT=COLUMNS: which columns (p0..p63, label, 0..12, -1) or array feed a model input or target");
  app.add_option("--transform", transform, "INPUT='scale 1/255' | 'normalize MEAN STD' | standardize (measured on the training part)");
}

DataOptions DataFlags::ToOptions() const {
  DataOptions options{.train = data, .eval = eval_data, .eval_split = eval_split};
  for (const std::string& word : map) {
    const auto [name, columns] = NameAndValue(word, "--map");
    if (!options.columns.emplace(name, columns).second) {
      throw Error(ErrorCode::kConfig, "--map is given twice for '" + Escaped(name) + "'");
    }
  }
  for (const std::string& word : transform) {
    const auto [name, text] = NameAndValue(word, "--transform");
    options.transforms[name].push_back(text);
  }
  return options;
}

}  // namespace gradloom

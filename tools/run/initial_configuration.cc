#include "tools/run/initial_configuration.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/plan/sample_axes.h"
#include "tools/run/set_up.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRandomData = "random:256";

// Keys that users are likely to change first; they are written with their defaults.
const std::set<std::string> kShown = {"data.eval_split", "data.batch", "optimizer.name", "optimizer.lr", "schedule.name",
                                      "train.epochs",    "train.seed", "devices.use",    "log.every"};

std::string Feeds(const std::vector<Feed>& feeds) {
  std::string text;
  for (const Feed& feed : feeds) {
    text += "#   " + Escaped(feed.name) + "  " + std::string(DTypeName(feed.dtype)) + feed.shape.ToString() + "\n";
  }
  return text;
}

void SetText(Configuration& configuration, const char* name, const std::string& value) { configuration.SetFlag(*FindKey(name), {value}); }

// Sets the keys that follow from the model and the data.
std::string Complete(Configuration& configuration) {
  if (configuration.Text("data.train").empty()) SetText(configuration, "data.train", kRandomData);
  if (!configuration.is_set("data.eval") && !configuration.is_set("data.eval_split")) SetText(configuration, "data.eval_split", "20%");
  Configuration used = configuration;
  const TrainingSetUp set_up = SetUpTraining(used);
  if (!configuration.is_set("model.shape") && used.is_set("model.shape")) {
    std::vector<std::string> words;
    for (const auto& [name, values] : used.Named("model.shape")) words.push_back(name + "=" + values[0]);
    configuration.SetFlag(*FindKey("model.shape"), words);
  }
  if (configuration.Integer("data.micro_batch") == 0) SetText(configuration, "data.batch", std::to_string(set_up.options.batch));
  if (!configuration.is_set("loss.name") && !configuration.is_set("loss.onnx")) SetText(configuration, "loss.name", set_up.loss);
  if (!configuration.is_set("data.map")) {
    std::vector<std::string> words;
    for (const auto& [name, columns] : set_up.data.columns) words.push_back(name + "=" + columns);
    if (!words.empty()) configuration.SetFlag(*FindKey("data.map"), words);
  }
  const Entry& entry = set_up.plan->entries.front();
  return Feeds(BySamples(entry.feeds, entry.batch));
}

}  // namespace

std::string InitialConfiguration(Configuration configuration, const std::string& path) {
  const std::string folder = FolderOf(path);
  const std::string feeds = Complete(configuration);
  std::string text = "# gradloom train -c " + ShellWord(fs::path(path).filename().string()) +
                     "\n# Flags and --set SECTION.KEY=VALUE override this file.\n\nversion = 1\n";
  std::string section;
  for (const Key& key : Keys()) {
    if (section != key.section()) {
      section = key.section();
      text += "\n[" + section + "]\n";
      if (section == "data") text += "# Inputs and targets of a training step:\n" + feeds;
    }
    text += "# " + std::string(key.help) + (*key.words == '\0' ? "" : ": " + std::string(key.words)) + "\n";
    KeyValue value = configuration.value(key.name);
    const std::string* path = key.type == KeyType::kPath ? &std::get<std::string>(value) : nullptr;
    if (path != nullptr && !path->empty() && !path->starts_with("random:") && !fs::path(*path).is_absolute()) {
      value = fs::proximate(*path, folder).string();
    }
    if (key.type == KeyType::kTerms) {
      for (std::string& term : std::get<std::vector<std::string>>(value)) {
        const size_t file = FileLengthOf(term);
        if (file > 0 && !fs::path(term).is_absolute()) term = fs::proximate(term.substr(0, file), folder).string() + term.substr(file);
      }
    }
    // TOML cannot write that a key has no value.
    const bool has_value = configuration.has_value(key.name);
    const bool shown = has_value && (configuration.is_set(key.name) || kShown.contains(key.name));
    text += (shown ? "" : "# ") + std::string(key.short_name()) + " = " + (has_value ? TomlOf(key, value) : "") + "\n";
  }
  return text;
}

}  // namespace gradloom

// gradloom init and config.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"
#include "tools/config/flags.h"
#include "tools/config/schema.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/initial_configuration.h"
#include "tools/run/options/model_options.h"
#include "tools/run/train/run_folder.h"
#include "tools/screen/json_line.h"
#include "tools/screen/shell_word.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

constexpr uint8_t kAllUses = kUseRecipe | kUseData | kUseRun;

int Init(const Configuration& configuration, const std::string& out, bool json) {
  if (std::filesystem::exists(out)) {
    throw Error(ErrorCode::kConfig, "the file exists and is not overwritten", Escaped(out, 4096), "choose another name with -o");
  }
  const std::string& model = ModelPathOf(configuration);
  WriteFileAtomically(out, InitialConfiguration(configuration, out));
  LogToStderr(Escaped(out, 4096) + " written   next: gradloom train -c " + ShellWord(out));
  if (json) std::printf("%s\n", JsonLine({{"output", out}, {"model", model}}).c_str());
  return 0;
}

const char* TypeName(KeyType type) {
  switch (type) {
    case KeyType::kText: return "text";
    case KeyType::kPath: return "path";
    case KeyType::kInteger: return "whole number";
    case KeyType::kNumber: return "number";
    case KeyType::kSwitch: return "true, false";
    case KeyType::kTexts:
    case KeyType::kTerms: return "text or list";
    case KeyType::kNamed: return "table of texts";
    case KeyType::kNamedLists: return "table of texts or lists";
    case KeyType::kNamedCounts: return "table of whole numbers";
    case KeyType::kNamedNumbers: return "table of numbers";
  }
  return "";
}

int PrintKeys(const std::string& section, bool json) {
  std::vector<std::string> sections;
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::vector<std::string>> table{{"key", "flag", "type", "default", "help"}};
  for (const Key& key : Keys()) {
    sections.emplace_back(key.section());
    if (!section.empty() && section != key.section() && section != key.name) continue;
    list.push_back({{"key", key.name},
                    {"flag", key.flag},
                    {"type", TypeName(key.type)},
                    {"default", key.fallback},
                    {"help", key.help},
                    {"words", WordsOf(key)}});
    table.push_back(
        {key.name, key.flag, TypeName(key.type), key.fallback, key.help + (*key.words == '\0' ? "" : ": " + std::string(key.words))});
  }
  if (list.empty()) {
    const std::string near = Nearest(section, sections);
    throw Error(ErrorCode::kConfig, "the configuration has no section '" + Escaped(section) + "'", "",
                near.empty() ? "see: gradloom config --keys" : DidYouMean("gradloom config --keys " + near));
  }
  if (json) {
    std::printf("%s\n", list.dump().c_str());
    return 0;
  }
  std::vector<size_t> widths(5);
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : table) {
    for (size_t i = 0; i + 1 < row.size(); ++i) std::printf("%-*s  ", static_cast<int>(widths[i]), row[i].c_str());
    std::printf("%s\n", row.back().c_str());
  }
  return 0;
}

// The configuration of a run, as it is in its folder, with the origins of the values at that time.
int PrintRun(const Configuration& given, const std::string& run, bool json) {
  for (const Key& key : Keys()) {
    if (!given.is_set(key.name) || key.name == std::string_view("model.path")) continue;
    throw Error(ErrorCode::kConfig, "the configuration of a run is shown as it is, without other flags", given.origin(key.name).ToString(),
                "gradloom resume " + ShellWord(run) + "   changes values");
  }
  const std::string path = RunFolder::Open(run).ConfigPath(), text = ReadWholeFile(path);
  if (json) {
    Configuration configuration;
    configuration.ReadFile(path);
    configuration.MarkRecorded(text);
    std::printf("%s\n", JsonLine(configuration.ToJson()).c_str());
  } else {
    std::printf("%s", text.c_str());
  }
  return 0;
}

}  // namespace

Action DeclareInit(CLI::App& app) {
  ConfigurationFlags flags;
  auto out = std::make_shared<std::string>("gradloom.toml");
  flags.Declare(app, kAllUses);
  app.add_option("-o,--output", *out, "the file to write")->capture_default_str();
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON object");
  return [flags, out, json] { return Init(flags.Resolve(), *out, *json); };
}

Action DeclareConfig(CLI::App& app) {
  ConfigurationFlags flags;
  auto section = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  flags.Declare(app, kAllUses | kUseJob);
  CLI::Option* keys = app.add_option("--keys", *section, "list all keys, or those of a section")->expected(0, 1);
  auto schema = std::make_shared<bool>(false);
  app.add_flag("--schema", *schema, "print the JSON schema of the file, for editors");
  app.add_flag("--json", *json, "print JSON");
  return [flags, section, schema, json, keys] {
    if (*schema) {
      std::printf("%s\n", ConfigurationSchema().dump(2).c_str());
      return 0;
    }
    if (keys->count() > 0) return PrintKeys(*section, *json);
    const Configuration configuration = flags.Resolve();
    if (RunFolder::IsRun(configuration.Text("model.path"))) return PrintRun(configuration, configuration.Text("model.path"), *json);
    std::printf("%s", *json ? (JsonLine(configuration.ToJson()) + "\n").c_str() : configuration.ToToml(true).c_str());
    return 0;
  };
}

}  // namespace gradloom

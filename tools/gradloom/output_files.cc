// Which flags of the verbs name files to write.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tools/config/configuration.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/files_apart.h"
#include "tools/run/train/run_folder.h"

namespace gradloom {
namespace {

// By their long names. All other flags may name files to read.
constexpr std::string_view kOutputs[] = {"output", "emit-onnx", "emit-dot", "emit-html", "html", "onnx", "dot", "log-file"};
constexpr const char* kOutputKeys[] = {"log.trace", "log.profile", "log.file"};

// As the user writes it: the short form of a flag that has one.
std::string NameOf(const CLI::Option& option) {
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  return "the argument '" + option.get_name() + "'";
}

bool IsOutput(const CLI::Option& option) {
  return !option.get_lnames().empty() && std::ranges::find(kOutputs, option.get_lnames().front()) != std::end(kOutputs);
}

// The key of the configuration that a flag sets, or that has its name; null if there is none.
const Key* KeyOf(const CLI::Option& option) { return option.get_lnames().empty() ? nullptr : FindFlag("--" + option.get_lnames().front()); }

// Whether its words may name files to read. Of the flags of keys, only those of paths do, not patterns of names; --profile is one that
// is written only as a key.
bool MayBeRead(const CLI::App& verb, const CLI::Option& option) {
  const Key* key = KeyOf(option);
  if (option.get_type_size() == 0 || verb.get_name() == "launch") return false;
  const bool has_keys = verb.get_option_no_throw("--config") != nullptr;
  return key == nullptr || key->type == KeyType::kPath || (!has_keys && std::string_view(key->name) == "log.profile");
}

PathKind KindOf(const CLI::Option& option, const std::string& word) {
  const Key* key = KeyOf(option);
  if (key != nullptr && key->section() == "data") return PathKind::kData;
  return word.ends_with(".onnx") ? PathKind::kModel : PathKind::kOther;
}

// The configuration of the command as far as it can be read; the verb itself reports what is wrong.
Configuration ReadableConfiguration(const CLI::App& verb) {
  Configuration configuration;
  const auto attempt = [](auto&& read) {
    try {
      read();
    } catch (const Error&) {
      // Reported by the verb.
    }
  };
  const auto words = [&](const char* flag) {
    const CLI::Option* option = verb.get_option_no_throw(flag);
    return option == nullptr ? std::vector<std::string>() : option->results();
  };
  for (const std::string& run : verb.get_name() == "resume" ? words("run") : std::vector<std::string>())
    attempt([&] { configuration.ReadFile(RunFolder::Open(run).ConfigPath()); });
  for (const std::string& file : words("--config")) attempt([&] { configuration.ReadFile(file); });
  for (const std::string& assignment : words("--set")) attempt([&] { configuration.SetAssignment(assignment); });
  for (const CLI::Option* option : verb.get_options()) {
    const Key* key = KeyOf(*option);
    if (key != nullptr && key->type != KeyType::kSwitch && option->count() > 0)
      attempt([&] { configuration.SetFlag(*key, option->results()); });
  }
  return configuration;
}

}  // namespace

void CheckOutputsApart(const CLI::App& verb) {
  std::vector<NamedPath> written, read;
  for (const CLI::Option* option : verb.get_options()) {
    const bool writes = IsOutput(*option);
    if (option->count() == 0 || (!writes && !MayBeRead(verb, *option))) continue;
    for (const std::string& word : option->results()) {
      if (!writes) {
        read.push_back({word, NameOf(*option), KindOf(*option, word)});
        continue;
      }
      written.push_back({word, NameOf(*option)});
      // The weights of an exported model are beside it.
      if (word.ends_with(".onnx") && verb.get_name() == "export") written.push_back({word + ".data", NameOf(*option)});
    }
  }
  if (verb.get_option_no_throw("--config") != nullptr) {
    const Configuration configuration = ReadableConfiguration(verb);
    for (NamedPath& path : PathsRead(configuration)) read.push_back(std::move(path));
    for (const char* key : kOutputKeys) {
      const std::string flag = FindKey(key)->flag, &path = configuration.Text(key);
      const auto is_it = [&](const NamedPath& one) { return one.name == flag; };
      if (path.empty() || verb.get_option_no_throw(flag) == nullptr) continue;
      if (std::ranges::none_of(written, is_it)) written.push_back({path, flag});
    }
  }
  CheckApart(written, read);
}

}  // namespace gradloom

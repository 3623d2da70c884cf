#include "tools/config/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

std::string HelpOf(const Key& key) {
  std::string help = key.help;
  if (*key.words != '\0') help += ": " + CLI::detail::join(WordsOf(key), ", ");
  const bool has_default = *key.fallback != '\0' && key.type != KeyType::kSwitch;
  return help + (has_default ? std::string("  [") + key.fallback + "]" : "") + "   (" + key.name + ")";
}

// One section of the help per section of the configuration.
std::string GroupOf(const Key& key) { return "[" + std::string(key.section()) + "]"; }

}  // namespace

std::string Underscored(std::string flag) {
  std::replace(flag.begin() + 2, flag.end(), '-', '_');
  return flag;
}

void ConfigurationFlags::Declare(CLI::App& app, uint8_t uses, bool model_word) {
  for (const Key& key : Keys()) {
    if ((key.uses & uses) == 0) continue;
    std::vector<std::string>& words = words_->flags[&key];
    if (key.type == KeyType::kSwitch) {
      const std::string name(key.flag);
      const std::string names = name.starts_with("--no-") ? name : name + ",!--no-" + name.substr(2);
      app.add_flag_function(
             names, [&words](int64_t count) { words = {count > 0 ? "true" : "false"}; }, HelpOf(key))
          ->group(GroupOf(key));
      continue;
    }
    const bool path = model_word && std::string_view(key.name) == "model.path";
    std::string names = path ? std::string("model,") + key.flag : key.flag;
    // Launchers use both spellings: torch.distributed.launch adds --local_rank=1 before PyTorch 2, and --local-rank=1 since.
    if (std::string twin = Underscored(key.flag); (key.uses & kUseJob) != 0 && twin != key.flag) names += "," + twin;
    // One word per flag: a variable-length list would swallow the model's path.
    app.add_option(names, words, HelpOf(key))->allow_extra_args(false)->type_name("")->group(GroupOf(key));
  }
  app.add_option("-c,--config", words_->files, "a TOML file with keys (gradloom init writes one)")->allow_extra_args(false)->type_name("");
  app.add_option("--set", words_->assignments, "SECTION.KEY=VALUE: override the file")->allow_extra_args(false)->type_name("");
}

Configuration ConfigurationFlags::Resolve(const std::string& base) const {
  Configuration configuration;
  if (!base.empty()) configuration.ReadFile(base);
  configuration.MarkRecorded(base.empty() ? "" : ReadWholeFile(base));
  // The folder of a run may come from anyone, and must not decide whom a process connects to.
  for (const Key& key : Keys()) {
    if (key.section() != "job" || !configuration.is_set(key.name)) continue;
    throw Error(ErrorCode::kConfig, "the configuration of a run cannot set " + std::string(key.name),
                Escaped(configuration.origin(key.name).ToString(), 4096), "remove it there, and use " + std::string(key.flag));
  }
  AddSetFlags(configuration);
  return configuration;
}

Configuration ConfigurationFlags::Readable(const std::string& base) const {
  Configuration configuration;
  const auto attempt = [](auto&& read) {
    try {
      read();
    } catch (const Error&) {
      // Resolve reports it.
    }
  };
  if (!base.empty()) attempt([&] { configuration.ReadFile(base); });
  for (const std::string& file : words_->files) attempt([&] { configuration.ReadFile(file); });
  for (const std::string& assignment : words_->assignments) attempt([&] { configuration.SetAssignment(assignment); });
  for (const auto& [key, words] : words_->flags) {
    if (!words.empty()) attempt([&, key = key, &words = words] { configuration.SetFlag(*key, words); });
  }
  return configuration;
}

Configuration ConfigurationFlags::ResolveOver(const std::string& text, const std::string& name) const {
  Configuration configuration;
  configuration.ReadText(text, name);
  configuration.MarkRecorded();
  AddSetFlags(configuration);
  return configuration;
}

void ConfigurationFlags::AddSetFlags(Configuration& configuration) const {
  for (const std::string& file : words_->files) configuration.ReadFile(file);
  for (const std::string& assignment : words_->assignments) configuration.SetAssignment(assignment);
  for (const auto& [key, words] : words_->flags) {
    if (!words.empty()) configuration.SetFlag(*key, words);
  }
}

}  // namespace gradloom

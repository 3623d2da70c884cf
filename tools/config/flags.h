// The command's flags for keys of the configuration, and -c and --set.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/config/configuration.h"

namespace CLI {
class App;
}

namespace gradloom {

// "--local-rank" -> "--local_rank".
std::string Underscored(std::string flag);

// Copies share their state, so that an action that CLI11 runs later sees what was parsed.
class ConfigurationFlags {
 public:
  // Declares the flags of the keys with any of these uses (KeyUse), -c FILE and --set KEY=VALUE. If `model_word` is set, the model's path
  // may be given without its flag.
  void Declare(CLI::App& app, uint8_t uses, bool model_word = true);

  // The defaults, `base` (the file of a run, which has no topology of a job; "": none), the files of -c, --set and the flags; later ones
  // override earlier ones. Values of `base` are marked as recorded. Throws Error(kConfig, kIo, kLimit).
  Configuration Resolve(const std::string& base = "") const;
  // The same as far as it can be read, without what is wrong; for how to report that.
  Configuration Readable(const std::string& base = "") const;
  // Resolve on top of the recipe of a plan, a text in the format of a file, which errors call `name`.
  Configuration ResolveOver(const std::string& text, const std::string& name) const;

 private:
  void AddSetFlags(Configuration& configuration) const;
  struct Words {
    std::vector<std::string> files, assignments;
    std::map<const Key*, std::vector<std::string>> flags;
  };
  std::shared_ptr<Words> words_ = std::make_shared<Words>();
};

}  // namespace gradloom

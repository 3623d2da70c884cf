#include "tools/run/views/teacher_note.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"

namespace gradloom {
namespace {

// Modules that the note names.
constexpr size_t kShownModules = 5;

constexpr std::string_view kTeacher = "teacher", kCopies[] = {"ema", "momentum", "target"};

// Whether a part of a module's path, such as "momentum_encoder", has this word.
bool HasWord(std::string_view part, std::string_view word) {
  const auto is_letter = [&](size_t at) { return at < part.size() && std::isalpha(static_cast<unsigned char>(part[at])) != 0; };
  for (size_t at = part.find(word); at != std::string_view::npos; at = part.find(word, at + 1)) {
    if (!is_letter(at - 1) && !is_letter(at + word.size())) return true;
  }
  return false;
}

// The length of the path up to the first module with one of the words, with the dot behind it; 0: there is none. `copy`: whether it is one
// of kCopies.
size_t MarkedLength(std::string_view name, bool& copy) {
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; begin = dot + 1, dot = name.find('.', begin)) {
    const std::string_view part = name.substr(begin, dot - begin);
    copy = std::any_of(std::begin(kCopies), std::end(kCopies), [&](std::string_view word) { return HasWord(part, word); });
    if (copy || HasWord(part, kTeacher)) return dot + 1;
  }
  return 0;
}

}  // namespace

std::string TeacherNote(const std::vector<CompileReport::Reason>& trained) {
  struct Module {
    bool copy = false;
    std::vector<std::string> rests;  // the names of its weights, from its own on
  };
  std::map<std::string, Module> modules;
  std::set<std::string> others;  // ends of the names of all other weights, after each dot
  for (const CompileReport::Reason& weight : trained) {
    bool copy = false;
    if (const size_t length = MarkedLength(weight.name, copy); length > 0) {
      Module& module = modules[weight.name.substr(0, length)];
      module.copy = copy;
      module.rests.push_back(weight.name.substr(length));
      continue;
    }
    for (size_t dot = weight.name.find('.'); dot != std::string::npos; dot = weight.name.find('.', dot + 1))
      others.insert(weight.name.substr(dot + 1));
  }
  std::vector<std::string> patterns;
  int64_t count = 0;
  for (const auto& [path, module] : modules) {
    // Every layer has a "weight", so a layer by itself is not taken for the copy of another.
    const bool has_layers =
        std::any_of(module.rests.begin(), module.rests.end(), [](const auto& rest) { return rest.find('.') != std::string::npos; });
    const bool copies = std::all_of(module.rests.begin(), module.rests.end(), [&](const auto& rest) { return others.contains(rest); });
    if (module.copy && !(has_layers && copies)) continue;
    patterns.push_back("'" + Escaped(path) + "*'");
    count += std::ssize(module.rests);
  }
  if (patterns.empty()) return "";
  const bool one = patterns.size() == 1;
  const auto more = static_cast<int64_t>(patterns.size() - std::min(patterns.size(), kShownModules));
  patterns.resize(std::min(patterns.size(), kShownModules));
  const std::string rest = more > 0 ? " and " + Counted(more, "more module") : "";
  return "note    " + Counted(count, "weight") + " " + (one ? patterns[0] : "(" + Joined(patterns) + rest + ")") +
         (count == 1 ? " is" : " are") +
         " trained; if the module uses them without gradients (torch.no_grad), which a file does not record, use --freeze " +
         Joined(patterns, " --freeze ") + (more > 0 ? " ..." : "");
}

}  // namespace gradloom

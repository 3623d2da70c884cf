// Keys by name, flag or what a user may mean.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ascii_lower.h"
#include "runtime/base/nearest.h"
#include "tools/config/keys.h"

namespace gradloom {
namespace {

std::vector<std::string> Pieces(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

// Folds learning-rate, Learning_Rate and learning_rate, which users mix up.
std::string Folded(std::string_view text) {
  std::string folded;
  for (const char c : text) folded += c == '-' ? '_' : AsciiLower(c);
  return folded;
}

// The key with `word` as its short name or alias; keys of this section are preferred.
const Key* FindWord(std::string_view word, std::string_view section) {
  const Key* found = nullptr;
  for (const Key& key : Keys()) {
    const std::vector<std::string> aliases = Pieces(key.aliases, ' ');
    if (key.short_name() != word && std::find(aliases.begin(), aliases.end(), word) == aliases.end()) continue;
    if (key.section() == section) return &key;
    if (found == nullptr) found = &key;
  }
  return found;
}

}  // namespace

std::string_view Key::section() const { return std::string_view(name).substr(0, std::string_view(name).find('.')); }
std::string_view Key::short_name() const { return std::string_view(name).substr(std::string_view(name).find('.') + 1); }

const Key* FindKey(std::string_view name) {
  // A second name, next to the other keys of checkpoints.
  if (name == "checkpoint.best") name = "eval.best";
  const auto found = std::ranges::find_if(Keys(), [&](const Key& key) { return name == key.name; });
  return found == Keys().end() ? nullptr : &*found;
}

const Key* FindFlag(std::string_view flag) {
  const auto found = std::ranges::find_if(Keys(), [&](const Key& key) { return flag == key.flag; });
  return found == Keys().end() ? nullptr : &*found;
}

std::vector<std::string> WordsOf(const Key& key) { return Pieces(key.words, '|'); }

std::string NearKey(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string section = Folded(name.substr(0, dot == std::string_view::npos ? 0 : dot));
  const std::string word = Folded(name.substr(dot == std::string_view::npos ? 0 : dot + 1));
  if (const Key* key = FindWord(word, section)) return key->name;
  std::vector<std::string> names;
  for (const Key& key : Keys()) names.emplace_back(dot == std::string_view::npos ? key.section() : key.name);
  return Nearest(Folded(name), names);
}

std::string NearFlag(std::string_view flag, const std::vector<std::string>& flags) {
  const size_t first = std::min(flag.find_first_not_of('-'), flag.size());
  const Key* key = FindWord(Folded(flag.substr(first)), "");
  if (key != nullptr && std::find(flags.begin(), flags.end(), key->flag) != flags.end()) return key->flag;
  return Nearest(flag, flags);
}

}  // namespace gradloom

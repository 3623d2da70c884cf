#include "tools/config/configuration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"
#include "runtime/base/utf8.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Refuse(const Key& key, const std::string& what, const std::string& where, const std::string& help = "") {
  throw Error(ErrorCode::kConfig, std::string(key.name) + " " + what, where,
              help.empty() ? "see: gradloom config --keys " + std::string(key.section()) : help);
}

template <typename T>
T Parsed(const Key& key, const std::string& word, const char* what, const std::string& where) {
  T number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc::result_out_of_range && end == word.data() + word.size()) {
    Refuse(key, "is out of range: '" + Escaped(word) + "'", where);
  }
  if (error != std::errc() || end != word.data() + word.size()) {
    Refuse(key, std::string("must be ") + what + ", got '" + Escaped(word) + "'", where);
  }
  return number;
}

NamedTexts ParseNamed(const Key& key, const std::vector<std::string>& words, const std::string& where) {
  NamedTexts named;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
      Refuse(key, "must be NAME=VALUE, got '" + Escaped(word) + "'", where);
    }
    std::vector<std::string>& values = named[word.substr(0, equals)];
    if (!values.empty() && key.type != KeyType::kNamedLists) {
      Refuse(key, "is given twice for '" + Escaped(word.substr(0, equals)) + "'", where);
    }
    std::string value = word.substr(equals + 1);
    // 007 is not a valid TOML number, so the parsed value is stored.
    if (key.type == KeyType::kNamedCounts) value = std::to_string(Parsed<int64_t>(key, value, "a whole number for each name", where));
    if (key.type == KeyType::kNamedNumbers) value = TomlNumber(Parsed<double>(key, value, "a number for each name", where));
    values.push_back(std::move(value));
  }
  return named;
}

void CheckText(const Key& key, const std::string& text, const std::string& where) {
  const std::vector<std::string> words = WordsOf(key);
  // An empty value is allowed only if it is the default. Otherwise the file of a run could not represent it, and a resumed run would use
  // the default.
  const bool may_be_nothing = text.empty() && *key.fallback == '\0';
  if (!words.empty() && !may_be_nothing && std::find(words.begin(), words.end(), text) == words.end()) {
    Refuse(key, "cannot be '" + Escaped(text) + "'", where, Suggestion(text, words, "expected one of: " + Joined(words)));
  }
  if (key.type == KeyType::kPath && (text.starts_with("~") || text.starts_with("$"))) {
    Refuse(key, "is '" + Escaped(text) + "', but '~' and '$' are not expanded here", where, "write the path out");
  }
}

std::string Quoted(const std::string& text) {
  // JSON strings are TOML basic strings, except for DEL.
  std::string quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (size_t at; (at = quoted.find('\x7f')) != std::string::npos;) quoted.replace(at, 1, "\\u007f");
  return quoted;
}

bool IsPlainKey(const std::string& name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
}

std::string ListOf(const std::vector<std::string>& texts) { return "[" + JoinedTexts(texts, Quoted) + "]"; }

// Without "." and "..", which could lead elsewhere than their text after a symbolic link: then as the links are now.
std::string AbsolutePath(const std::string& path) {
  const fs::path absolute = fs::absolute(path), plain = absolute.lexically_normal();
  if (plain.string().size() == absolute.string().size()) return plain.string();
  std::error_code error;
  const fs::path target = fs::weakly_canonical(absolute, error);
  return error || target == fs::weakly_canonical(plain, error) ? plain.string() : target.string();
}

// The value for use in any folder: paths are absolute.
KeyValue WithAbsolutePath(const Key& key, KeyValue value) {
  if (key.type == KeyType::kTerms) {
    for (std::string& term : std::get<std::vector<std::string>>(value)) {
      const size_t file = FileLengthOf(term);
      if (file > 0) term = AbsolutePath(term.substr(0, file)) + term.substr(file);
    }
  }
  if (key.type != KeyType::kPath) return value;
  const std::string& path = std::get<std::string>(value);
  return path.empty() || path.starts_with("random:") ? value : AbsolutePath(path);
}

bool IsNothing(const KeyValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return text->empty();
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return texts->empty();
  if (const auto* named = std::get_if<NamedTexts>(&value)) return named->empty();
  return false;
}

KeyValue Nothing(KeyType type) {
  switch (type) {
    case KeyType::kInteger: return int64_t{0};
    case KeyType::kNumber: return 0.0;
    case KeyType::kSwitch: return false;
    case KeyType::kTexts:
    case KeyType::kTerms: return std::vector<std::string>();
    case KeyType::kNamed:
    case KeyType::kNamedLists:
    case KeyType::kNamedCounts:
    case KeyType::kNamedNumbers: return NamedTexts();
    default: return std::string();
  }
}

// A line of a configuration file, without a comment.
std::string TomlLine(const Key& key, const KeyValue& value) { return std::string(key.short_name()) + " = " + TomlOf(key, value); }

}  // namespace

std::string TomlNumber(double number) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number);
  std::string out(text, end);
  // A TOML float needs a fraction or an exponent. Without one it would be an integer, which is accepted as well up to 64 bits.
  const bool large = std::abs(number) >= 1e18 && std::isfinite(number);
  return large && out.find('e') == std::string::npos ? out + ".0" : out;
}

std::string Origin::ToString() const {
  return (kind == OriginKind::kDefault ? "default" : place) + (overridden.empty() ? "" : " (over " + overridden + ")");
}

size_t FileLengthOf(const std::string& term) {
  const size_t open = std::min(term.find('('), term.size()), star = open < term.size() ? open : std::min(term.rfind('*'), term.size());
  const size_t last = term.substr(0, std::min(open, star)).find_last_not_of(" \t");
  const std::string_view head = std::string_view(term).substr(0, last == std::string::npos ? 0 : last + 1);
  return head.ends_with(".onnx") || head.ends_with(".onnxtxt") ? head.size() : 0;
}

KeyValue ParseWords(const Key& key, const std::vector<std::string>& words, const std::string& where) {
  const bool repeats = key.type == KeyType::kTexts || key.type == KeyType::kTerms || IsNamed(key.type);
  if (!repeats && words.size() != 1) Refuse(key, "is given twice", where);
  KeyValue value;
  switch (key.type) {
    case KeyType::kInteger: value = Parsed<int64_t>(key, words[0], "a whole number", where); break;
    case KeyType::kNumber: value = Parsed<double>(key, words[0], "a number", where); break;
    case KeyType::kSwitch:
      if (words[0] != "true" && words[0] != "false") Refuse(key, "must be true or false, got '" + Escaped(words[0]) + "'", where);
      value = words[0] == "true";
      break;
    case KeyType::kTexts:
    case KeyType::kTerms: value = words; break;
    case KeyType::kNamed:
    case KeyType::kNamedLists:
    case KeyType::kNamedCounts:
    case KeyType::kNamedNumbers: value = ParseNamed(key, words, where); break;
    default: value = words[0];
  }
  CheckValue(key, value, where);
  return value;
}

void CheckValue(const Key& key, const KeyValue& value, const std::string& where) {
  const auto within = [&](double number, const std::string& shown) {
    const auto bound = [&](double limit) {
      return key.type == KeyType::kInteger ? std::to_string(static_cast<int64_t>(limit)) : TomlNumber(limit);
    };
    if (!std::isfinite(number)) Refuse(key, "must be a finite number", where);
    if (number < key.least) Refuse(key, "must be at least " + bound(key.least) + ", got " + shown, where);
    if (number > key.most) Refuse(key, "must be at most " + bound(key.most) + ", got " + shown, where);
  };
  if (const auto* integer = std::get_if<int64_t>(&value)) within(static_cast<double>(*integer), std::to_string(*integer));
  if (const auto* number = std::get_if<double>(&value)) within(*number, TomlNumber(*number));
  if (const auto* text = std::get_if<std::string>(&value)) CheckText(key, *text, where);
  const auto* named = std::get_if<NamedTexts>(&value);
  if (named == nullptr) return;
  for (const auto& [name, values] : *named) {
    if (key.type == KeyType::kNamedNumbers) within(Parsed<double>(key, values[0], "a number for each name", where), values[0]);
    if (key.type != KeyType::kNamedCounts) continue;
    if (Parsed<int64_t>(key, values[0], "a whole number for each name", where) < 1) {
      Refuse(key, "must be at least 1 for '" + Escaped(name) + "'", where);
    }
  }
}

Configuration::Configuration() {
  for (const Key& key : Keys()) {
    const bool has_default = *key.fallback != '\0';
    entries_[key.name] = {has_default ? ParseWords(key, {key.fallback}, "") : Nothing(key.type), {}, !has_default};
  }
}

const Configuration::Entry& Configuration::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  GRADLOOM_CHECK(found != entries_.end());
  return found->second;
}

const Origin& Configuration::origin(std::string_view name) const { return entry(name).origin; }
bool Configuration::has_value(std::string_view name) const { return !entry(name).empty && !IsNothing(entry(name).value); }
const KeyValue& Configuration::value(std::string_view name) const { return entry(name).value; }

void Configuration::Assign(const Key& key, KeyValue value, OriginKind kind, const std::string& place) {
  Entry& entry = entries_.at(key.name);
  const bool over = entry.origin.kind != OriginKind::kDefault && entry.origin.kind != kind;
  // The same value again, and names that the weaker source does not set, override nothing.
  bool same = over && WithAbsolutePath(key, value) == WithAbsolutePath(key, entry.value);
  if (auto* named = std::get_if<NamedTexts>(&value)) {
    // Names that only the weaker source sets are kept.
    const auto& weaker = std::get<NamedTexts>(entry.value);
    for (const auto& [name, texts] : weaker) named->emplace(name, texts);
    same = over && std::all_of(weaker.begin(), weaker.end(), [&](const auto& entry) { return named->at(entry.first) == entry.second; });
  }
  const std::string overridden = same ? entry.origin.overridden : over ? entry.origin.place : "";
  entry = {std::move(value), {.kind = kind, .place = place, .overridden = overridden, .file = files_}, false};
}

void Configuration::SetFlag(const Key& key, const std::vector<std::string>& words) {
  Assign(key, ParseWords(key, words, key.flag), OriginKind::kFlag, key.flag);
}

void Configuration::MarkRecorded(const std::string& toml) {
  for (auto& [name, entry] : entries_) entry.origin.recorded = entry.origin.kind != OriginKind::kDefault;
  std::istringstream text(toml);
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const Key* key = FindKey(section + "." + line.substr(0, line.find(' ')));
    if (key == nullptr || !has_value(key->name)) continue;
    const std::string before = TomlLine(*key, value(key->name));
    const size_t comment = line.find_first_not_of(' ', before.size());
    if (!line.starts_with(before) || comment == std::string::npos || !line.substr(comment).starts_with("# ")) continue;
    entries_.at(key->name).origin.first = line.substr(comment + 2);
  }
}

void Configuration::ForgetSection(std::string_view section) {
  const Configuration untouched;
  for (const Key& key : Keys()) {
    if (key.section() == section) entries_.at(key.name) = untouched.entry(key.name);
  }
}

void Configuration::Reset(std::string_view name) {
  const Configuration untouched;
  entries_.find(name)->second = untouched.entry(name);
}

void Configuration::Decide(std::string_view name, const std::string& text, const std::string& place) {
  const Key& key = *FindKey(name);
  Assign(key, ParseWords(key, {text}, place), OriginKind::kFile, place);
}

std::vector<std::string> Configuration::SetKeyLines() const {
  std::vector<std::string> lines;
  for (const Key& key : Keys()) {
    if (is_set(key.name))
      lines.push_back(std::string(key.name) + " = " + TomlOf(key, value(key.name)) + "   from " +
                      Escaped(origin(key.name).ToString(), 4096));
  }
  return lines;
}

std::string TomlOf(const Key& key, const KeyValue& value) {
  if (const auto* on = std::get_if<bool>(&value)) return *on ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return TomlNumber(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return Quoted(*text);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
    return texts->size() == 1 ? Quoted(texts->front()) : ListOf(*texts);
  std::string table;
  for (const auto& [name, texts] : std::get<NamedTexts>(value)) {
    const bool bare = key.type == KeyType::kNamedCounts || key.type == KeyType::kNamedNumbers;
    const std::string text = bare ? texts[0] : texts.size() == 1 ? Quoted(texts[0]) : ListOf(texts);
    table += (table.empty() ? " " : ", ") + (IsPlainKey(name) ? name : Quoted(name)) + " = " + text;
  }
  return "{" + table + (table.empty() ? "}" : " }");
}

std::string ValueText(const Configuration& configuration, const Key& key) {
  return configuration.has_value(key.name) ? TomlOf(key, WithAbsolutePath(key, configuration.value(key.name))) : "nothing";
}

namespace {

// TOML is UTF-8. A path with other bytes would change in the file from which a run is resumed.
void RequireUtf8(const Key& key, const KeyValue& value, const Origin& origin) {
  const auto check = [&](const std::string& text) {
    if (IsUtf8(text)) return;
    throw Error(ErrorCode::kConfig,
                std::string(key.name) + " '" + Escaped(text, 4096) + "' is not UTF-8, so a configuration cannot hold it",
                Escaped(origin.ToString(), 4096), "rename the file or folder, or link to it");
  };
  if (const auto* text = std::get_if<std::string>(&value)) check(*text);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) std::for_each(texts->begin(), texts->end(), check);
  if (const auto* named = std::get_if<NamedTexts>(&value)) {
    for (const auto& [name, texts] : *named) {
      check(name);
      std::for_each(texts.begin(), texts.end(), check);
    }
  }
}

}  // namespace

std::string Configuration::ToToml(bool origins) const {
  std::string toml = "version = 1\n", section;
  for (const Key& key : Keys()) {
    const Entry& entry = this->entry(key.name);
    if (!has_value(key.name)) continue;
    if (section != key.section()) {
      section = key.section();
      toml += "\n[" + section + "]\n";
    }
    const KeyValue value = WithAbsolutePath(key, entry.value);
    RequireUtf8(key, value, entry.origin);
    std::string line = TomlLine(key, value);
    if (origins) line += std::string(line.size() < 40 ? 40 - line.size() : 1, ' ') + "# " + Escaped(entry.origin.FirstToString(), 4096);
    toml += line + "\n";
  }
  return toml;
}

nlohmann::json Configuration::ToJson() const {
  nlohmann::json json = nlohmann::json::object();
  for (const Key& key : Keys()) {
    const Entry& entry = this->entry(key.name);
    nlohmann::json value;
    if (has_value(key.name)) {
      std::visit([&](const auto& held) { value = held; }, entry.value);
    }
    json[key.name] = {{"value", value}, {"origin", entry.origin.FirstToString()}};
  }
  return json;
}

}  // namespace gradloom

// Reads configuration files; topology.cc reads the other TOML files.
#include <algorithm>
#include <filesystem>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/suggestion.h"
#include "tools/config/configuration.h"
#include "tools/config/toml_text.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

std::string PlaceOf(const std::string& file, const toml::source_region& source) {
  return file + ":" + std::to_string(source.begin.line) + ":" + std::to_string(source.begin.column);
}

std::string KindOf(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "true or false";
    default: return "a date or time";
  }
}

const char* Wanted(KeyType type) {
  switch (type) {
    case KeyType::kInteger: return "a whole number";
    case KeyType::kNumber: return "a number";
    case KeyType::kSwitch: return "true or false";
    case KeyType::kTexts:
    case KeyType::kTerms: return "a string or a list of strings";
    case KeyType::kNamed: return "a table of names and strings";
    case KeyType::kNamedLists: return "a table of names and strings or lists of strings";
    case KeyType::kNamedCounts: return "a table of names and whole numbers";
    case KeyType::kNamedNumbers: return "a table of names and numbers";
    default: return "a string";
  }
}

}  // namespace

// Walks a parsed file and assigns its values.
class TomlReader {
 public:
  TomlReader(Configuration& into, std::string file, OriginKind kind, std::string folder)
      : into_(into), file_(std::move(file)), kind_(kind), folder_(std::move(folder)) {}

  void ReadRoot(const toml::table& root) {
    // First, because it says how errors in the rest are reported.
    if (const toml::node* report = root["log"]["report"].node()) ReadKey("log.report", report->source(), *report);
    for (const auto& [name, node] : root) {
      const std::string text(name.str());
      if (text == "version") {
        if (node.value<int64_t>() != 1) Refuse(node, "version must be 1 in this release", "write version = 1");
        continue;
      }
      const toml::table* section = node.as_table();
      const bool known = std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) { return key.section() == text; });
      if (!known || section == nullptr) RefuseName(text, name.source());
      for (const auto& [short_name, value] : *section) ReadKey(text + "." + std::string(short_name.str()), short_name.source(), value);
    }
  }

 private:
  [[noreturn]] void Refuse(const toml::node& node, const std::string& what, const std::string& help) const {
    throw Error(ErrorCode::kConfig, what, Place(node.source()), help);
  }

  [[noreturn]] void RefuseName(const std::string& name, const toml::source_region& source) const {
    const std::string section = name.substr(0, name.find('.'));
    const bool known = std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) { return key.section() == section; });
    throw Error(ErrorCode::kConfig, "unknown key '" + Escaped(name) + "'", Place(source),
                DidYouMean(NearKey(name), "see: gradloom config --keys" + (known ? " " + section : "")));
  }

  std::string Place(const toml::source_region& source) const { return kind_ == OriginKind::kFile ? PlaceOf(file_, source) : file_; }

  void ReadKey(const std::string& name, const toml::source_region& source, const toml::node& node) {
    const Key* key = FindKey(name);
    if (key == nullptr) RefuseName(name, source);
    const std::string place = Place(source);
    KeyValue value = Convert(*key, node);
    CheckValue(*key, value, Place(node.source()));
    if (key->type == KeyType::kPath) {
      std::string& path = std::get<std::string>(value);
      if (!path.empty() && !path.starts_with("random:") && !folder_.empty()) path = (fs::path(folder_) / path).string();
    }
    if (key->type == KeyType::kTerms && !folder_.empty()) {
      for (std::string& term : std::get<std::vector<std::string>>(value)) {
        if (FileLengthOf(term) > 0) term = (fs::path(folder_) / term).string();
      }
    }
    into_.Assign(*key, std::move(value), kind_, place);
  }

  [[noreturn]] void RefuseType(const Key& key, const toml::node& node) const {
    Refuse(node, std::string(key.name) + " must be " + Wanted(key.type) + ", got " + KindOf(node),
           "see: gradloom config --keys " + std::string(key.section()));
  }

  KeyValue Convert(const Key& key, const toml::node& node) const {
    switch (key.type) {
      case KeyType::kSwitch:
        if (const auto* on = node.as_boolean()) return on->get();
        break;
      case KeyType::kInteger:
        if (const auto* integer = node.as_integer()) return integer->get();
        break;
      case KeyType::kNumber:
        if (const auto* number = node.as_floating_point()) return number->get();
        if (const auto* integer = node.as_integer()) return static_cast<double>(integer->get());
        break;
      case KeyType::kTexts:
      case KeyType::kTerms: return TextsOf(key, node);
      case KeyType::kNamed:
      case KeyType::kNamedLists:
      case KeyType::kNamedCounts:
      case KeyType::kNamedNumbers:
        if (const toml::table* table = node.as_table()) return NamedOf(key, *table);
        break;
      default:
        if (const auto* text = node.as_string()) return text->get();
        // A value like warmup = 500 is parsed as text but written as a number.
        if (const auto* integer = node.as_integer(); integer != nullptr && key.type == KeyType::kText && *key.words == '\0')
          return std::to_string(integer->get());
    }
    RefuseType(key, node);
  }

  std::vector<std::string> TextsOf(const Key& key, const toml::node& node) const {
    if (const auto* text = node.as_string()) return {text->get()};
    const toml::array* array = node.as_array();
    if (array == nullptr) RefuseType(key, node);
    std::vector<std::string> texts;
    for (const toml::node& element : *array) {
      const auto* text = element.as_string();
      if (text == nullptr) RefuseType(key, element);
      texts.push_back(text->get());
    }
    return texts;
  }

  NamedTexts NamedOf(const Key& key, const toml::table& table) const {
    NamedTexts named;
    for (const auto& [name, node] : table) {
      std::vector<std::string>& texts = named[std::string(name.str())];
      const auto* integer = node.as_integer();
      if (integer != nullptr && key.type != KeyType::kNamedLists) {
        texts = {std::to_string(integer->get())};
      } else if (key.type == KeyType::kNamedLists) {
        texts = TextsOf(key, node);
      } else if (const auto* number = node.as_floating_point(); number != nullptr && key.type == KeyType::kNamedNumbers) {
        texts = {TomlNumber(number->get())};
      } else if (const auto* text = node.as_string(); text != nullptr && key.type == KeyType::kNamed) {
        texts = {text->get()};
      }
      if (texts.empty()) RefuseType(key, node);
    }
    return named;
  }

  Configuration& into_;
  std::string file_;  // for locations in errors
  OriginKind kind_;
  std::string folder_;  // the folder that paths are relative to; empty: the working directory
};

namespace {

// The parser's own words say which part of TOML it was reading.
std::string HelpFor(const std::string& why) {
  const auto about = [&](const char* words) { return why.find(words) != std::string::npos; };
  if (about("redefine")) return "a file has each section and each key once: join them, or leave one out";
  if (about("table header") || about("while parsing table")) return "a section begins with a line such as [train]";
  if (about("key-value pair")) return "a line has the form key = value";
  return "expected 3, 1e-3, true, \"text\", [\"a\", \"b\"] or { name = \"text\" }";
}

// Throws Error(kConfig) for a file of another format, in which the first line alone would be called wrong.
void CheckIsToml(const std::string& path, const std::string& text) {
  const std::string lower = [&] {
    std::string ending = fs::path(path).extension().string();
    std::ranges::transform(ending, ending.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return ending;
  }();
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = lower == ".json" || (first != std::string::npos && text[first] == '{');
  const bool yaml = lower == ".yaml" || lower == ".yml" || text.starts_with("---\n");
  if (!json && !yaml) return;
  throw Error(ErrorCode::kConfig, std::string("this is ") + (json ? "JSON" : "YAML") + ", but a configuration is a TOML file",
              Escaped(path, 4096),
              "write it as gradloom.toml, with sections such as [train] and lines such as epochs = 10   see: gradloom config --keys");
}

toml::table Parse(const std::string& text, const std::string& where, bool with_position) {
  try {
    return ParseToml(text);
  } catch (const toml::parse_error& error) {
    const std::string why(error.description());
    throw Error(ErrorCode::kConfig, Escaped(why), with_position ? PlaceOf(where, error.source()) : where, HelpFor(why));
  }
}

// Whether the value is spelled as TOML: a quoted text, a list or a table.
bool LooksLikeToml(const std::string& value) {
  return !value.empty() && std::string_view("\"'[{").find(value[0]) != std::string_view::npos;
}

}  // namespace

void Configuration::ReadFile(const std::string& path) {
  const std::string text = ReadWholeFile(path, kTomlLimitBytes);
  CheckIsToml(path, text);
  const std::string folder = fs::path(path).parent_path().string();
  ++files_;
  TomlReader(*this, Escaped(path, 4096), OriginKind::kFile, folder).ReadRoot(Parse(text, Escaped(path, 4096), true));
}

void Configuration::ReadText(const std::string& text, const std::string& name) {
  if (std::ssize(text) > kTomlLimitBytes)
    throw Error(ErrorCode::kLimit, "the configuration is too large: " + std::to_string(text.size()) + " bytes", name);
  ++files_;
  TomlReader(*this, name, OriginKind::kFile, "").ReadRoot(Parse(text, name, true));
}

void Configuration::SetAssignment(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string where = "--set " + Escaped(assignment);
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorCode::kConfig, "'" + Escaped(assignment) + "' must be SECTION.KEY=VALUE", "--set",
                "for example --set optimizer.lr=1e-3");
  }
  const std::string name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  const Key* key = FindKey(name);
  // data.map.image=p0..p63 sets one name of a table.
  const size_t last = name.rfind('.');
  if (key == nullptr && last != std::string::npos) {
    const Key* table = FindKey(name.substr(0, last));
    if (table != nullptr && IsNamed(table->type))
      return Assign(*table, ParseWords(*table, {name.substr(last + 1) + "=" + value}, where), OriginKind::kSet, where);
  }
  if (key == nullptr) {
    throw Error(ErrorCode::kConfig, "unknown key '" + Escaped(name) + "'", where, DidYouMean(NearKey(name), "see: gradloom config --keys"));
  }
  if (!LooksLikeToml(value)) return Assign(*key, ParseWords(*key, {value}, where), OriginKind::kSet, where);
  const toml::table parsed =
      Parse("[" + std::string(key->section()) + "]\n" + std::string(key->short_name()) + " = " + value, where, false);
  TomlReader(*this, where, OriginKind::kSet, "").ReadRoot(parsed);
}

}  // namespace gradloom

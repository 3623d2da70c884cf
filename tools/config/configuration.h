// The resolved configuration of a command: a value for every key, and where it is from.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/config/keys.h"

namespace gradloom {

using NamedTexts = std::map<std::string, std::vector<std::string>>;
using KeyValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>, NamedTexts>;

// Where a value is from; a later one wins over an earlier one.
enum class OriginKind : uint8_t { kDefault, kFile, kSet, kFlag };

struct Origin {
  OriginKind kind = OriginKind::kDefault;
  std::string place;      // "gradloom.toml:14:1", "--set", "--lr"; empty for a default
  std::string overruled;  // the place of a value that lost against this one; empty: none

  // "default", "gradloom.toml:14:1", "--lr (over gradloom.toml:14:1)".
  std::string ToString() const;
};

class Configuration {
 public:
  // Every key at its default.
  Configuration();

  // The keys of a TOML file. Throws Error(kConfig) with file:line:column for bad syntax, an unknown key (with the
  // nearest), a value of another type or out of its range; Error(kIo), Error(kLimit) as ReadWholeFile.
  void ReadFile(const std::string& path);
  // The same of a text in memory, which errors call `name`; relative paths in it are those of the working folder.
  void ReadText(const std::string& text, const std::string& name);

  // "optimizer.lr=1e-3": the value as in a file, or as bare text. Throws Error(kConfig).
  void SetAssignment(const std::string& assignment);

  // What the flag was given, one word for each time. Throws Error(kConfig).
  void SetFlag(const Key& key, const std::vector<std::string>& words);

  // What the model or the machine has decided where nobody did; `place` says which.
  void Decide(std::string_view name, const std::string& text, const std::string& place);

  // A key, and all keys of a section, as if nobody had given them.
  void Forget(std::string_view name);
  void ForgetSection(std::string_view section);

  // Of a key of that type, by its name; an absent text is "" (is_given tells).
  bool Switch(std::string_view name) const { return std::get<bool>(value(name)); }
  int64_t Integer(std::string_view name) const { return std::get<int64_t>(value(name)); }
  double Number(std::string_view name) const { return std::get<double>(value(name)); }
  const std::string& Text(std::string_view name) const { return std::get<std::string>(value(name)); }
  const std::vector<std::string>& Texts(std::string_view name) const { return std::get<std::vector<std::string>>(value(name)); }
  const NamedTexts& Named(std::string_view name) const { return std::get<NamedTexts>(value(name)); }

  // Whether the key has a value of its own: not its default, and not nothing.
  bool is_given(std::string_view name) const { return origin(name).kind != OriginKind::kDefault; }
  // Whether there is a value at all, given or by default.
  bool has_value(std::string_view name) const;
  const Origin& origin(std::string_view name) const;
  const KeyValue& value(std::string_view name) const;

  // "optimizer.lr = 0.1   from --lr", of each key that has been given.
  std::vector<std::string> GivenLines() const;

  // The whole as a TOML file that gives the same again from any folder: paths are absolute. `origins`: a comment
  // with the origin behind each value. Throws Error(kConfig) for text that is not UTF-8.
  std::string ToToml(bool origins) const;

  // {"optimizer.lr": {"value": 0.001, "origin": "default"}, ...}; a key without a value is null.
  nlohmann::json ToJson() const;

 private:
  struct Entry {
    KeyValue value;
    Origin origin;
    bool empty = false;  // a number that has no default and was not given
  };

  void Assign(const Key& key, KeyValue value, OriginKind kind, const std::string& place);
  const Entry& entry(std::string_view name) const;

  friend class TomlReader;
  std::map<std::string, Entry, std::less<>> entries_;
};

// How many bytes of a loss term are the ONNX file that it begins with; 0: it begins with none.
size_t FileLengthOf(const std::string& term);

// A value as TOML spells it.
std::string TomlOf(const Key& key, const KeyValue& value);

// The same from any folder: paths are absolute.
KeyValue WithAbsolutePath(const Key& key, KeyValue value);

// From what a flag or --set has said. `where` is named in errors. Throws Error(kConfig).
KeyValue ParseWords(const Key& key, const std::vector<std::string>& words, const std::string& where);

// Throws Error(kConfig) for a value that is not among the key's words, not finite, below its least or above its most.
void CheckValue(const Key& key, const KeyValue& value, const std::string& where);

}  // namespace gradloom

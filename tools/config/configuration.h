// The resolved configuration of a command: a value for every key, and its origin.
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

// Where a value comes from; later ones override earlier ones.
enum class OriginKind : uint8_t { kDefault, kFile, kSet, kFlag };

struct Origin {
  OriginKind kind = OriginKind::kDefault;
  std::string place;       // "gradloom.toml:14:1", "--set", "--lr"; empty for a default
  std::string overridden;  // the origin of another value that this one overrides; empty: none
  bool recorded = false;   // whether a run or a plan has stored it
  int file = 0;            // of kFile: the number of the file, in the order in which they were read

  std::string first = "";  // of a recorded value: where it came from when it was recorded; empty: not known

  // Whether this is a file, a plan or a run, and `other` a stronger source: a flag, or a later file.
  bool IsFileUnder(const Origin& other) const {
    return kind == OriginKind::kFile && (other.kind > OriginKind::kFile || (other.kind == OriginKind::kFile && other.file > file));
  }

  // "default", "gradloom.toml:14:1", "--lr (over gradloom.toml:14:1)".
  std::string ToString() const;
  // The same, for a recorded value at the time when it was recorded, if that is known.
  std::string FirstToString() const { return first.empty() ? ToString() : first; }
};

class Configuration {
 public:
  // All keys have their defaults.
  Configuration();

  // Reads the keys of a TOML file. Throws Error(kConfig) with file:line:column for invalid syntax, an unknown key (with the nearest one),
  // or a value of the wrong type or out of range; Error(kIo) and Error(kLimit) as ReadWholeFile.
  void ReadFile(const std::string& path);
  // The same for text in memory, which errors call `name`; relative paths in it start at the working directory.
  void ReadText(const std::string& text, const std::string& name);

  // Marks all that has been read so far as the record of a run or a plan, which perhaps an earlier release has written. `toml`: the text of
  // the record, if ToToml may have written origins into it.
  void MarkRecorded(const std::string& toml = "");

  // Applies "optimizer.lr=1e-3", with the value as in a file or as bare text. Throws Error(kConfig).
  void SetAssignment(const std::string& assignment);

  // Applies the values of a flag, one word for each time it was given. Throws Error(kConfig).
  void SetFlag(const Key& key, const std::vector<std::string>& words);

  // Sets a value that was derived from the model or the machine because none was given; `place` names the origin.
  void Decide(std::string_view name, const std::string& text, const std::string& place);

  // Resets a key, or all keys of a section, to the defaults.
  void Reset(std::string_view name);
  void ForgetSection(std::string_view section);

  // Values by name of the key, which must have that type; an absent text is "" (see is_set).
  bool Switch(std::string_view name) const { return std::get<bool>(value(name)); }
  int64_t Integer(std::string_view name) const { return std::get<int64_t>(value(name)); }
  double Number(std::string_view name) const { return std::get<double>(value(name)); }
  const std::string& Text(std::string_view name) const { return std::get<std::string>(value(name)); }
  const std::vector<std::string>& Texts(std::string_view name) const { return std::get<std::vector<std::string>>(value(name)); }
  const NamedTexts& Named(std::string_view name) const { return std::get<NamedTexts>(value(name)); }

  // Whether the key was set to a value other than its default.
  bool is_set(std::string_view name) const { return origin(name).kind != OriginKind::kDefault; }
  // Whether there is a value, set or by default.
  bool has_value(std::string_view name) const;
  const Origin& origin(std::string_view name) const;
  const KeyValue& value(std::string_view name) const;

  // "optimizer.lr = 0.1   from --lr" for each key that was set.
  std::vector<std::string> SetKeyLines() const;

  // The configuration as a TOML file that has the same meaning in any folder: paths are absolute. `origins`: adds a comment with the origin
  // after each value. Throws Error(kConfig) for text that is not UTF-8.
  std::string ToToml(bool origins) const;

  // {"optimizer.lr": {"value": 0.001, "origin": "default"}, ...}; a key without a value is null.
  nlohmann::json ToJson() const;

 private:
  struct Entry {
    KeyValue value;
    Origin origin;
    bool empty = false;  // a number without default that was not set
  };

  void Assign(const Key& key, KeyValue value, OriginKind kind, const std::string& place);
  const Entry& entry(std::string_view name) const;

  friend class TomlReader;
  std::map<std::string, Entry, std::less<>> entries_;
  int files_ = 0;  // that have been read
};

// The length in bytes of the ONNX file name at the beginning of a loss term; 0 if there is none.
size_t FileLengthOf(const std::string& term);

// The shortest text from which the number is read again, as TOML writes it.
std::string TomlNumber(double number);

// The value in TOML syntax.
std::string TomlOf(const Key& key, const KeyValue& value);

// The key's value in TOML syntax, with an absolute path; "nothing" if it has none.
std::string ValueText(const Configuration& configuration, const Key& key);

// Parses the words of a flag or of --set. `where` is named in errors. Throws Error(kConfig).
KeyValue ParseWords(const Key& key, const std::vector<std::string>& words, const std::string& where);

// Throws Error(kConfig) for a value that is not one of the key's words, not finite, below its minimum or above its maximum.
void CheckValue(const Key& key, const KeyValue& value, const std::string& where);

}  // namespace gradloom

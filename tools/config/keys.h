// The keys of the configuration, one row each. Flags, TOML files, --set, `gradloom config --keys`, suggestions and value checks all use
// this table.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

enum class KeyType : uint8_t {
  kText,
  kPath,  // a file or folder; in a configuration file, relative to that file's folder
  kInteger,
  kNumber,        // finite
  kSwitch,        // true or false; the bare flag means true
  kTexts,         // one text or a list; the flag may be repeated
  kTerms,         // as kTexts; the ONNX file that a text may begin with is as kPath: "my_loss.onnx(y=label)*0.5"
  kNamed,         // name -> text; the flag takes NAME=TEXT and may be repeated
  kNamedLists,    // name -> texts; a name may be repeated
  kNamedCounts,   // name -> whole number of at least 1
  kNamedNumbers,  // name -> finite number within the key's bounds
};

// Whether values are tables of names; the flag takes NAME=VALUE and may be repeated.
constexpr bool IsNamed(KeyType type) {
  return type == KeyType::kNamed || type == KeyType::kNamedLists || type == KeyType::kNamedCounts || type == KeyType::kNamedNumbers;
}

// The verbs that use a key.
enum KeyUse : uint8_t {
  kUseRecipe = 1,  // what a model is compiled from
  kUseData = 2,
  kUseRun = 4,    // how a training run proceeds
  kUseEval = 8,   // how a trained model is evaluated and used
  kUsePlan = 16,  // what a plan needs in addition if there is no data to derive it from
  kUseJob = 32,   // the rank of a command in a job of several processes
};

struct Key {
  const char* name;  // "optimizer.lr": section and key
  const char* flag;  // "--lr"
  KeyType type;
  uint8_t uses;          // a combination of KeyUse
  const char* fallback;  // the default in the syntax of the flag; "": none
  const char* help;
  const char* words = "";  // the allowed texts, separated by '|'; "": any
  double least = -std::numeric_limits<double>::infinity();
  const char* aliases = "";  // names in other tools, separated by spaces, for suggestions
  double most = std::numeric_limits<double>::infinity();

  std::string_view section() const;
  std::string_view short_name() const;
};

// All keys, in the order of a configuration file.
std::span<const Key> Keys();

// The key of this name or flag, or null.
const Key* FindKey(std::string_view name);
const Key* FindFlag(std::string_view flag);

// The allowed texts of a key; empty: any.
std::vector<std::string> WordsOf(const Key& key);

// The key that an unknown name probably means ("optimizer.lr" for "train.learning_rate"), or "".
std::string NearKey(std::string_view name);

// The flag among these that an unknown one probably means, or "".
std::string NearFlag(std::string_view flag, const std::vector<std::string>& flags);

}  // namespace gradloom

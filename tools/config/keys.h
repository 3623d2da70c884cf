// The keys of the configuration, one row each. Flags, TOML files, --set, `gradloom config --keys`, did-you-mean and
// the checks of values all come from this table.
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
  kPath,  // a file or folder; in a file, relative to the file's folder
  kInteger,
  kNumber,       // finite
  kSwitch,       // true or false; the flag alone means true
  kTexts,        // one text or a list; the flag may be repeated
  kTerms,        // as kTexts; the ONNX file that a text may begin with is as kPath: "my_loss.onnx(y=label)*0.5"
  kNamed,        // name -> text; the flag reads NAME=TEXT and may be repeated
  kNamedLists,   // name -> texts; a name may be repeated
  kNamedCounts,  // name -> whole number of at least 1
};

// Which verbs have use for a key.
enum KeyUse : uint8_t {
  kUseRecipe = 1,  // what a model is compiled from
  kUseData = 2,
  kUseRun = 4,    // what a training run does
  kUseEval = 8,   // what a trained model is judged and used with
  kUsePlan = 16,  // what a plan needs besides, where there are no data to tell
  kUseJob = 32,   // which of several processes a command is
};

struct Key {
  const char* name;  // "optimizer.lr": the section of the file, a dot, the key in it
  const char* flag;  // "--lr"
  KeyType type;
  uint8_t uses;          // of KeyUse
  const char* fallback;  // the default, as the flag would say it; "": none
  const char* help;
  const char* words = "";  // the texts allowed, separated by '|'; "": any
  double least = -std::numeric_limits<double>::infinity();
  const char* aliases = "";  // what others call it, separated by spaces, for did-you-mean
  double most = std::numeric_limits<double>::infinity();

  std::string_view section() const;
  std::string_view short_name() const;
};

// All of them, in the order in which a file has them.
std::span<const Key> Keys();

// The row of this name or flag, or null.
const Key* FindKey(std::string_view name);
const Key* FindFlag(std::string_view flag);

// The allowed texts of a key; empty: any.
std::vector<std::string> WordsOf(const Key& key);

// The key that was probably meant by a name that is none ("optimizer.lr" for "train.learning_rate"), or "".
std::string NearKey(std::string_view name);

// The one of these flags that was probably meant, or "".
std::string NearFlag(std::string_view flag, const std::vector<std::string>& flags);

}  // namespace gradloom

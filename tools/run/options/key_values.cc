#include "tools/run/options/key_values.h"

#include <algorithm>

#include "runtime/base/joined.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {

double ParseNumber(const std::string& text, const std::string& what) {
  if (const std::optional<double> value = ReadNumber<double>(text)) return *value;
  throw Error(ErrorCode::kConfig, what + " '" + Escaped(text) + "' is not a number", "", "expected a number such as 0.1, 1e-3 or 500");
}

void CheckOneOf(const std::string& name, const std::vector<std::string>& known, const std::string& message, const std::string& where) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw Error(ErrorCode::kConfig, message, where, Suggestion(name, known, "expected one of: " + JoinedNames(known)));
}

bool IsChanged(const Configuration& configuration, const Key& key) {
  static const Configuration defaults;
  return configuration.value(key.name) != defaults.value(key.name);
}

void PrintSetKeys(const Configuration& configuration) {
  for (const std::string& line : configuration.SetKeyLines()) WriteStderrLine("debug", "config  " + line);
}

}  // namespace gradloom

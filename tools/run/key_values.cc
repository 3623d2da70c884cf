#include "tools/run/key_values.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/nearest.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {

double ParseNumber(const std::string& text, const std::string& what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorCode::kConfig, what + " '" + Escaped(text) + "' is not a number", "", "expected a number such as 0.1, 1e-3 or 500");
  return value;
}

void CheckOneOf(const std::string& name, const std::vector<std::string>& known, const std::string& message, const std::string& where) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string all;
  for (const std::string& other : known) all += (all.empty() ? "" : ", ") + Escaped(other);
  const std::string near = Nearest(name, known);
  throw Error(ErrorCode::kConfig, message, where,
              (near.empty() ? "" : "did you mean '" + Escaped(near) + "'?   ") + ("expected one of: " + all));
}

bool IsChanged(const Configuration& configuration, const Key& key) {
  static const Configuration defaults;
  return configuration.value(key.name) != defaults.value(key.name);
}

void PrintSetKeys(const Configuration& configuration) {
  for (const std::string& line : configuration.SetKeyLines()) WriteStderrLine("debug", "config  " + line);
}

}  // namespace gradloom

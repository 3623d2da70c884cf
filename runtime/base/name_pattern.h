// Patterns with which users name tensors and nodes of a model.
#pragma once

#include <string_view>

namespace gradloom {

// Whether `name` matches a pattern of '*' (any text, or none) and '?' (any byte). All other characters stand for themselves, since names
// have brackets, slashes and backslashes.
bool MatchesPattern(std::string_view pattern, std::string_view name);

// Whether `name` matches one of the patterns, a range of texts.
bool MatchesAnyPattern(const auto& patterns, std::string_view name) {
  for (const std::string_view pattern : patterns) {
    if (MatchesPattern(pattern, name)) return true;
  }
  return false;
}

// Whether one of the names, a range of texts, matches the pattern.
bool PatternMatchesAny(std::string_view pattern, const auto& names) {
  for (const std::string_view name : names) {
    if (MatchesPattern(pattern, name)) return true;
  }
  return false;
}

}  // namespace gradloom

#include "runtime/base/name_pattern.h"

namespace gradloom {

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // Greedy matching with one position to backtrack to: linear time except for repeated stars.
  size_t p = 0, n = 0, star = std::string_view::npos, restart = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      restart = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++restart;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace gradloom

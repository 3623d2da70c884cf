// "Did you mean".
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ascii_lower.h"

namespace gradloom {

// The Levenshtein distance, ignoring case.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (AsciiLower(a[i - 1]) != AsciiLower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The known word nearest to `word`, or "" if none is near: at most one edit for a word of less than four letters, two for a longer one, a
// third of the letters for a long one.
inline std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  const size_t length = std::min<size_t>(word.size(), 64);
  size_t best_distance = (length < 4 ? 1 : std::max<size_t>(2, length / 3)) + 1;
  for (const std::string& candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace gradloom

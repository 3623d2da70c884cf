// Help for a misspelt name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/nearest.h"

namespace gradloom {

// "did you mean 'lr'?   expected one of: lr, momentum": the name `near`, if there is one, and what helps in any case, if anything does. The
// name is escaped, and cut after `limit` bytes.
inline std::string DidYouMean(std::string_view near, std::string_view otherwise = {}, size_t limit = 200) {
  std::string help = near.empty() ? "" : "did you mean '" + Escaped(near, limit) + "'?";
  if (!help.empty() && !otherwise.empty()) help += "   ";
  return help.append(otherwise);
}

// The same with the known name that is nearest to `word`, if one is near.
inline std::string Suggestion(std::string_view word, const std::vector<std::string>& known, std::string_view otherwise = {}) {
  return DidYouMean(Nearest(word, known), otherwise);
}

}  // namespace gradloom

// Lists in messages, in full.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace gradloom {

// "a, b, c". Names of unknown origin must be Escaped: see JoinedNames.
template <typename Texts>
std::string Joined(const Texts& texts, std::string_view separator = ", ") {
  std::string joined;
  for (const auto& text : texts) {
    if (!joined.empty()) joined += separator;
    joined += text;
  }
  return joined;
}

// The texts that `text_of` makes of the items.
template <typename Items, typename TextOf>
std::string JoinedTexts(const Items& items, const TextOf& text_of, std::string_view separator = ", ") {
  std::string joined;
  for (const auto& item : items) {
    if (!joined.empty()) joined += separator;
    joined += text_of(item);
  }
  return joined;
}

// Names of unknown origin.
template <typename Names>
std::string JoinedNames(const Names& names) {
  return JoinedTexts(names, [](std::string_view name) { return Escaped(name); });
}

}  // namespace gradloom

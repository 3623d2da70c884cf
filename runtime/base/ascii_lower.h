// Lower case, whatever the locale of the process: the letters A to Z, and no others.
#pragma once

#include <string>

namespace gradloom {

constexpr char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string AsciiLower(std::string text) {
  for (char& c : text) c = AsciiLower(c);
  return text;
}

}  // namespace gradloom

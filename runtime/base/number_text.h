// Numbers in messages, whatever the locale of the process.
#pragma once

#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace gradloom {

// "3", "0.333333", "1e+30": whole numbers below 10^15 in full, others with six digits as printf's %g.
inline std::string NumberText(double value) {
  if (value == std::trunc(value) && std::abs(value) < 1e15 && !(value == 0 && std::signbit(value)))
    return std::to_string(static_cast<int64_t>(value));
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr};
}

// As snprintf, with a decimal point in every locale. At most 255 bytes.
template <typename... Args>
std::string Formatted(const char* format, Args... args) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = ::uselocale(plain);  // of this thread
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  ::uselocale(before);
  return text;
}

}  // namespace gradloom

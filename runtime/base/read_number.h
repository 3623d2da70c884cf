// Numbers in texts, whatever the locale of the process.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace gradloom {

// The whole text as a number of this type: digits, for signed types after an optional '-', without white space, '+' or units.
// std::nullopt if it is something else, or out of the type's range.
template <typename Number>
std::optional<Number> ReadNumber(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// The number that the text begins with, as far as it goes. Removes it from the text, and leaves the text as it is if there is none.
template <typename Number>
std::optional<Number> TakeNumber(std::string_view& text) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

}  // namespace gradloom

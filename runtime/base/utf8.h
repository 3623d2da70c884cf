// Text as UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

// The number of bytes of the valid character at the front of `text`, which is not empty; 0 if it is invalid. Overlong forms, surrogates and
// numbers beyond U+10FFFF are invalid.
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

// The character with this number; U+FFFD for a number that is not one.
std::string Utf8Of(uint32_t point);

}  // namespace gradloom

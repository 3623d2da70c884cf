// Text as UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace gradloom {

// The bytes of the valid character at the front of `text`, which is not empty; 0: there is none. Overlong forms, surrogates and numbers
// past U+10FFFF are none.
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace gradloom

// TOML from anyone. All readers of TOML include the parser by way of this file, so that they have it with the same settings.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {
[[noreturn]] void ThrowMalformedToml();
}  // namespace gradloom

// The parser asserts what malformed text can break ("[[" within a key, a NUL within a time); without NDEBUG that would end the process,
// with it be ignored. Here it is an exception, which ParseToml turns into the error that it is.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : ::gradloom::ThrowMalformedToml())
#define TOML_ENABLE_FORMATTERS 0
// Lists and tables within each other.
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace gradloom {

// No TOML file that a person writes is larger.
inline constexpr int64_t kTomlLimitBytes = 1 << 20;

// Throws toml::parse_error with its place, also for dotted keys of more than 32 parts: each part is a table in a table, which the
// parser neither counts nor survives; and for letters beyond ASCII outside of quotes and comments.
toml::table ParseToml(const std::string& text);

}  // namespace gradloom

// Parses TOML from untrusted sources. All readers of TOML include the parser through this file, so that they share its settings.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {
[[noreturn]] void ThrowMalformedToml();
}  // namespace gradloom

// The parser asserts conditions that malformed text can violate ("[[" within a key, a NUL within a time). Without NDEBUG that would end the
// process; with it the violation would be ignored. Here it throws an exception, which ParseToml turns into the proper error.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : ::gradloom::ThrowMalformedToml())
#define TOML_ENABLE_FORMATTERS 0
// Nesting limit of lists and tables.
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace gradloom {

// More than any hand-written TOML file needs.
inline constexpr int64_t kTomlLimitBytes = 1 << 20;

// Throws toml::parse_error with its position. This includes dotted keys of more than 32 parts, since each part is a nested table, which the
// parser neither counts nor survives, and non-ASCII letters outside of quotes and comments.
toml::table ParseToml(const std::string& text);

}  // namespace gradloom

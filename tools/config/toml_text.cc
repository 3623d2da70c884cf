#include "tools/config/toml_text.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace gradloom {
namespace {

constexpr int kMaxKeyParts = 32;

// The position after the string that begins at `at`, judged only by its quotes; errors inside are left to the parser.
size_t EndOfString(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool lines = text.substr(at, 3) == std::string(3, quote);
  for (at += lines ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text[at] == '\n' && !lines) {
      return at;
    } else if (text[at] == quote && (!lines || text.substr(at, 3) == std::string(3, quote))) {
      at += lines ? 3 : 1;
      // Up to two quotes may precede the three that end the string.
      while (lines && at < text.size() && text[at] == quote) ++at;
      return at;
    }
  }
  return text.size();
}

void CheckText(std::string_view text) {
  int parts = 1;
  toml::source_position place{1, 1};
  // The file may begin with a byte order mark.
  for (size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; at < text.size();) {
    size_t next = at + 1;
    switch (text[at]) {
      case '"':
      case '\'': next = EndOfString(text, at); break;
      case '#': next = std::min(text.find('\n', at), text.size()); break;
      case '.':
        if (++parts > kMaxKeyParts) throw toml::parse_error("a key has more than 32 parts", place);
        break;
      // None of these occurs within a key.
      case '=':
      case ',':
      case '[':
      case ']':
      case '{':
      case '}':
      case '\n': parts = 1; break;
      default:
        // The parser classifies some non-ASCII letters as whitespace.
        if (static_cast<unsigned char>(text[at]) >= 0x80) throw toml::parse_error("a non-ASCII character outside of quotes", place);
    }
    for (; at < next; ++at) {
      ++place.column;
      if (text[at] == '\n') place = {place.line + 1, 1};
    }
  }
}

}  // namespace

void ThrowMalformedToml() { throw std::logic_error("the text is malformed"); }

toml::table ParseToml(const std::string& text) {
  CheckText(text);
  try {
    return toml::parse(text);
  } catch (const std::logic_error& error) {
    throw toml::parse_error(error.what(), toml::source_position{1, 1});
  }
}

}  // namespace gradloom

#include "tools/screen/shell_word.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Non-ASCII letters have no special meaning to a shell.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return byte >= 0x80 || alphanumeric || std::string_view("/._-+,:@%=").find(c) != std::string_view::npos;
}

}  // namespace

std::string ShellWord(std::string_view text) {
  const std::string shown = Escaped(text, 4096);
  if (!text.empty() && std::all_of(text.begin(), text.end(), IsPlain)) return shown;
  std::string word = "'";
  for (const char c : shown) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace gradloom

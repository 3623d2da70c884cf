#include "runtime/base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace gradloom {
namespace {

// The encoding by the table of RFC 3629, which depends only on the code point.
std::string Encoded(uint32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | (point >> 6)), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | (point >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (point >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Utf8, EveryCharacterAndNothingElse) {
  for (uint32_t point = 0; point < 0x140000; ++point) {
    const std::string text = Encoded(point);
    const bool is_character = point < 0x110000 && (point < 0xD800 || point >= 0xE000);
    ASSERT_EQ(Utf8Length(text + "x"), is_character ? text.size() : 0) << point;
    ASSERT_EQ(Utf8Of(point), is_character ? text : "\xEF\xBF\xBD") << point;
    // A truncated character is invalid.
    for (size_t cut = 1; cut < text.size(); ++cut) ASSERT_EQ(Utf8Length(text.substr(0, cut)), 0) << point;
  }
}

TEST(Utf8, OverlongForms) {
  for (const char* text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\xAF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xF8\x88\x80\x80\x80"})
    EXPECT_EQ(Utf8Length(text), 0);
}

TEST(Utf8, WholeTexts) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"));
  EXPECT_FALSE(IsUtf8("caf\xE9"));
  EXPECT_FALSE(IsUtf8("\x80"));
  EXPECT_FALSE(IsUtf8("ok\xC3"));
}

}  // namespace
}  // namespace gradloom

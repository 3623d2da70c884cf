#include "runtime/data/tokens.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/base/temporary_folder.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

std::string MessageOf(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    return error.message();
  }
  return "";
}

TEST(Tokens, RoundTripAndPlainFiles) {
  const TemporaryFolder folder;
  const std::vector<uint16_t> tokens = {0, 1, 65535, 7};
  WriteTokens(folder / "a.bin", tokens);
  EXPECT_EQ(InputFile(folder / "a.bin").bytes(), 1024 + 8);
  EXPECT_EQ(ReadTokens(folder / "a.bin"), tokens);
  WriteFileAtomically(folder / "b.bin", std::string_view("\x01\x00\x02\x01", 4));
  EXPECT_EQ(ReadTokens(folder / "b.bin"), (std::vector<uint16_t>{1, 258}));
}

TEST(Tokens, RejectsDamagedFiles) {
  const TemporaryFolder folder;
  WriteTokens(folder / "a.bin", {1, 2, 3});
  std::string text = ReadWholeFile(folder / "a.bin");
  const auto message = [&](const std::string& content) {
    WriteFileAtomically(folder / "x.bin", content);
    return MessageOf([&] { ReadTokens(folder / "x.bin"); });
  };
  EXPECT_NE(message(text.substr(0, text.size() - 2)).find("counts 3 tokens"), std::string::npos);
  EXPECT_NE(message("abc").find("not a whole number"), std::string::npos);
  text[4] = 9;
  EXPECT_NE(message(text).find("version 9"), std::string::npos);
  // 32-bit tokens must not be read as twice as many 16-bit ones, including the header.
  const int32_t wide[] = {20240801, 7, 4};
  text.resize(1024 + 16);
  std::memcpy(text.data(), wide, sizeof wide);
  EXPECT_NE(message(text).find("32-bit tokens"), std::string::npos);
}

TEST(Tokens, WindowsAreFollowedByTheNextToken) {
  const TokenWindows w = WindowsOf({1, 2, 3, 4, 5, 6, 7}, 3, "test");
  EXPECT_EQ(w.tokens.shape(), (Shape{2, 3}));
  EXPECT_EQ(w.tokens.as<int64_t>()[3], 4);
  EXPECT_EQ(w.next.as<int64_t>()[2], 4);
  EXPECT_EQ(w.next.as<int64_t>()[5], 7);
  EXPECT_EQ(WindowsOf({1, 2, 3, 4, 5, 6}, 3, "test").tokens.shape(), (Shape{1, 3}));  // the second window lacks its last target
  EXPECT_NE(MessageOf([] { WindowsOf({1, 2, 3}, 3, "test"); }).find("too few for a window"), std::string::npos);
  EXPECT_NE(MessageOf([] { WindowsOf({}, 3, "test"); }).find("too few for a window"), std::string::npos);
}

}  // namespace
}  // namespace gradloom

#include "runtime/base/read_number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradloom {
namespace {

TEST(ReadNumber, ReadsTheWholeText) {
  EXPECT_EQ(ReadNumber<int64_t>("-12"), -12);
  EXPECT_EQ(ReadNumber<double>("1e-3"), 1e-3);
  for (const std::string_view text : {"", "-", " 1", "1 ", "+1", "1.5", "0x10", "12a", "9223372036854775808"})
    EXPECT_EQ(ReadNumber<int64_t>(text), std::nullopt) << text;
  for (const std::string_view text : {"", "1,5", "1.5 ", "1e999"}) EXPECT_EQ(ReadNumber<double>(text), std::nullopt) << text;
  EXPECT_EQ(ReadNumber<uint64_t>("-1"), std::nullopt);
}

TEST(TakeNumber, LeavesWhatFollows) {
  std::string_view text = "20%";
  EXPECT_EQ(TakeNumber<double>(text), 20);
  EXPECT_EQ(text, "%");
  EXPECT_EQ(TakeNumber<double>(text), std::nullopt);
  EXPECT_EQ(text, "%");
}

}  // namespace
}  // namespace gradloom

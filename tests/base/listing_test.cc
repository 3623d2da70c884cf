#include "runtime/base/listing.h"

#include <gtest/gtest.h>

#include <string>

namespace gradloom {
namespace {

std::string TextOf(int texts, size_t most) {
  Listing listing(most);
  for (int i = 0; i < texts; ++i) listing.Add(std::string(1, static_cast<char>('a' + i)));
  EXPECT_EQ(listing.count(), static_cast<size_t>(texts));
  return listing.text();
}

TEST(Listing, ShowsTheFirstTextsAndTheNumberOfTheOthers) {
  EXPECT_EQ(TextOf(0, 3), "");
  EXPECT_EQ(TextOf(1, 3), "a");
  EXPECT_EQ(TextOf(3, 3), "a, b, c");
  EXPECT_EQ(TextOf(4, 3), "a, b, c and 1 more");
  EXPECT_EQ(TextOf(9, 1), "a and 8 more");
}

TEST(Listing, KeepsEmptyTexts) {
  Listing listing(3);
  listing.Add("");
  listing.Add("b");
  EXPECT_EQ(listing.text(), ", b");
}

}  // namespace
}  // namespace gradloom

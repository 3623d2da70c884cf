#include "runtime/base/name_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradloom {
namespace {

TEST(NamePattern, StarMatchesAnyTextAndQuestionMarkOneByte) {
  EXPECT_TRUE(FitsPattern("", ""));
  EXPECT_FALSE(FitsPattern("", "a"));
  EXPECT_TRUE(FitsPattern("*", ""));
  EXPECT_TRUE(FitsPattern("conv*.weight", "conv1.block.weight"));
  EXPECT_FALSE(FitsPattern("conv*.weight", "conv1.weight_g"));
  EXPECT_TRUE(FitsPattern("fc?.bias", "fc1.bias"));
  EXPECT_FALSE(FitsPattern("fc?.bias", "fc.bias"));
  EXPECT_FALSE(FitsPattern("fc?.bias", "fc12.bias"));
  // The first possible match for the text after a star is not the right one.
  EXPECT_TRUE(FitsPattern("*ab*ac", "aabxabac"));
  EXPECT_FALSE(FitsPattern("*ab*ad", "aabxabac"));
  // A name that contains stars itself.
  EXPECT_TRUE(FitsPattern("a*b", "a*b"));
  EXPECT_TRUE(FitsPattern("a*", "a*b"));
}

TEST(NamePattern, OtherCharactersMatchThemselves) {
  EXPECT_TRUE(FitsPattern("blocks[0]*", "blocks[0].weight"));
  EXPECT_FALSE(FitsPattern("blocks[0]*", "blocks0.weight"));
  EXPECT_TRUE(FitsPattern("/net/*\\?", "/net/Add/a\\1"));
  EXPECT_FALSE(FitsPattern("Net*", "net.weight"));
}

TEST(NamePattern, AnyOfSeveralPatterns) {
  const std::vector<std::string> texts{"*.bias", "head*"};
  EXPECT_TRUE(FitsAnyPattern(texts, "head.weight"));
  EXPECT_FALSE(FitsAnyPattern(texts, "trunk.weight"));
  EXPECT_FALSE(FitsAnyPattern(std::vector<std::string>{}, "a"));
  EXPECT_TRUE(PatternFitsAny("*1", std::vector<std::string>{"a", "a1"}));
  EXPECT_FALSE(PatternFitsAny("*1", std::vector<std::string>{}));
}

}  // namespace
}  // namespace gradloom

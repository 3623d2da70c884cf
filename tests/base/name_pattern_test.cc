#include "runtime/base/name_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradloom {
namespace {

TEST(NamePattern, StarMatchesAnyTextAndQuestionMarkOneByte) {
  EXPECT_TRUE(MatchesPattern("", ""));
  EXPECT_FALSE(MatchesPattern("", "a"));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("conv*.weight", "conv1.block.weight"));
  EXPECT_FALSE(MatchesPattern("conv*.weight", "conv1.weight_g"));
  EXPECT_TRUE(MatchesPattern("fc?.bias", "fc1.bias"));
  EXPECT_FALSE(MatchesPattern("fc?.bias", "fc.bias"));
  EXPECT_FALSE(MatchesPattern("fc?.bias", "fc12.bias"));
  // The first possible match for the text after a star is not the right one.
  EXPECT_TRUE(MatchesPattern("*ab*ac", "aabxabac"));
  EXPECT_FALSE(MatchesPattern("*ab*ad", "aabxabac"));
  // A name that contains stars itself.
  EXPECT_TRUE(MatchesPattern("a*b", "a*b"));
  EXPECT_TRUE(MatchesPattern("a*", "a*b"));
}

TEST(NamePattern, OtherCharactersMatchThemselves) {
  EXPECT_TRUE(MatchesPattern("blocks[0]*", "blocks[0].weight"));
  EXPECT_FALSE(MatchesPattern("blocks[0]*", "blocks0.weight"));
  EXPECT_TRUE(MatchesPattern("/net/*\\?", "/net/Add/a\\1"));
  EXPECT_FALSE(MatchesPattern("Net*", "net.weight"));
}

TEST(NamePattern, AnyOfSeveralPatterns) {
  const std::vector<std::string> texts{"*.bias", "head*"};
  EXPECT_TRUE(MatchesAnyPattern(texts, "head.weight"));
  EXPECT_FALSE(MatchesAnyPattern(texts, "trunk.weight"));
  EXPECT_FALSE(MatchesAnyPattern(std::vector<std::string>{}, "a"));
  EXPECT_TRUE(PatternMatchesAny("*1", std::vector<std::string>{"a", "a1"}));
  EXPECT_FALSE(PatternMatchesAny("*1", std::vector<std::string>{}));
}

}  // namespace
}  // namespace gradloom

#include "runtime/base/suggestion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradloom {
namespace {

const std::vector<std::string> kKnown = {"epochs", "batch"};

TEST(Suggestion, NamesTheNearest) {
  EXPECT_EQ(Suggestion("epoch", kKnown), "did you mean 'epochs'?");
  EXPECT_EQ(Suggestion("epoch", kKnown, "see the list"), "did you mean 'epochs'?   see the list");
  EXPECT_EQ(Suggestion("weights", kKnown, "see the list"), "see the list");
  EXPECT_EQ(Suggestion("weights", kKnown), "");
}

TEST(Suggestion, EscapesAndCutsTheName) {
  EXPECT_EQ(DidYouMean("a\n"), "did you mean 'a\\x0a'?");
  EXPECT_EQ(DidYouMean(std::string(9, 'a'), {}, 4), "did you mean 'aaaa...'?");
}

}  // namespace
}  // namespace gradloom

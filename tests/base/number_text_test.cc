#include "runtime/base/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace gradloom {
namespace {

TEST(NumberText, HasSixDigitsUnlessWhole) {
  EXPECT_EQ(NumberText(0.1F), "0.1");
  EXPECT_EQ(NumberText(1.0 / 3), "0.333333");
  EXPECT_EQ(NumberText(-2.5e-7), "-2.5e-07");
  EXPECT_EQ(NumberText(16777217), "16777217");
  EXPECT_EQ(NumberText(-3), "-3");
  EXPECT_EQ(NumberText(-0.0), "-0");
  EXPECT_EQ(NumberText(-1e300), "-1e+300");
  EXPECT_EQ(NumberText(-INFINITY), "-inf");
}

TEST(Formatted, IsLikePrintfAndCutsLongTexts) {
  EXPECT_EQ(Formatted("%5.1f %% of %s", 12.34, "it"), " 12.3 % of it");
  EXPECT_EQ(Formatted("%s", std::string(300, 'a').c_str()), std::string(255, 'a'));
}

}  // namespace
}  // namespace gradloom

#include "runtime/base/joined.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/counted.h"

namespace gradloom {
namespace {

TEST(Joined, SeparatesTexts) {
  constexpr std::string_view kKinds[] = {"linear", "cosine"};
  EXPECT_EQ(Joined(std::vector<std::string>{}), "");
  EXPECT_EQ(Joined(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(Joined(kKinds), "linear, cosine");
  EXPECT_EQ(Joined(std::vector<std::string>{"a", "b", "c"}, " + "), "a + b + c");
  EXPECT_EQ(JoinedTexts(
                std::vector<int64_t>{1, -2}, [](int64_t n) { return std::to_string(n); }, ","),
            "1,-2");
}

TEST(Joined, EscapesNames) { EXPECT_EQ(JoinedNames(std::vector<std::string>{"a\n", "b"}), "a\\x0a, b"); }

TEST(Counted, HasOneFormForOneThing) {
  EXPECT_EQ(Counted(0, "device"), "0 devices");
  EXPECT_EQ(Counted(1, "device"), "1 device");
  EXPECT_EQ(Counted(2, "batch", "batches"), "2 batches");
}

}  // namespace
}  // namespace gradloom

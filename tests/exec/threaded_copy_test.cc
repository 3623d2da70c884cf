#include "runtime/base/threaded_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace gradloom {
namespace {

// Every byte arrives and none outside, for sizes around those at which another thread takes part, and for addresses without alignment.
TEST(ThreadedCopy, CopiesAllBytesAndNoMore) {
  constexpr int64_t kPart = int64_t{4} << 20, kMargin = 100;
  constexpr std::byte kUntouched{0xAB};
  std::vector<std::byte> from(5 * kPart + 2 * kMargin);
  std::mt19937 random(1);
  std::generate(from.begin(), from.end(), [&] { return static_cast<std::byte>(random()); });
  ThreadedCopy copy;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, 2 * kPart - 1, 2 * kPart, 3 * kPart + 77, 4 * kPart + 1, 5 * kPart + 13}) {
    for (const int64_t shift : {0, 3}) {
      std::vector<std::byte> to(from.size(), kUntouched);
      copy.Copy(to.data() + kMargin - shift, from.data() + shift, bytes);
      const auto begin = to.begin() + (kMargin - shift), end = begin + bytes;
      EXPECT_TRUE(std::equal(begin, end, from.begin() + shift)) << bytes;
      const auto untouched = [&](std::byte b) { return b == kUntouched; };
      EXPECT_TRUE(std::all_of(to.begin(), begin, untouched)) << bytes;
      EXPECT_TRUE(std::all_of(end, to.end(), untouched)) << bytes;
    }
  }
}

}  // namespace
}  // namespace gradloom

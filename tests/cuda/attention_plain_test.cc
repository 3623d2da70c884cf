// Attention if cuBLASLt has no algorithm for its products.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda/attention_calls.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom {
namespace {

using namespace attention_calls;  // NOLINT: all of it

TEST(AttentionProducts, OwnProductsGiveTheSameResults) {
  const Case c{"", 2, 3, 3, 270, 24, 8, 4, false, {{"is_causal", kOne}}, {}, false, false, false, 2};
  for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{}, {0, 1, 2}}) {
    TheLibraries().TakeNotes();
    emulated::SetBlasHasAlgorithms(false);
    Compare(CallOf(c, wanted), 5);
    emulated::SetBlasHasAlgorithms(true);
    const std::vector<std::string> notes = TheLibraries().TakeNotes();
    // Two or five products per block, in three types; equal notes are given once.
    ASSERT_FALSE(notes.empty());
    EXPECT_TRUE(notes[0].starts_with("cuBLASLt has nothing for a product of a Attention")) << notes[0];
  }
}

}  // namespace
}  // namespace gradloom

// Attention as products: every order of its operands, blocks of queries and parts of the heads, compared with the float32 reference.
#include "kernels/cuda/rows/attention_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/reference/reference.h"
#include "tests/cuda/attention_calls.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using namespace attention_calls;  // NOLINT: all of it

TEST(AttentionProducts, AgreeWithTheReference) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.note);
    const KernelCall call = CallOf(c);
    const auto products = AttentionProductsOf(call);
    ASSERT_TRUE(products.has_value());
    EXPECT_EQ(products->packed, c.packed);
    EXPECT_EQ(products->blocks.size(), c.blocks);
    Compare(call, 1);
  }
}

TEST(AttentionProducts, GradientsAgreeWithTheReference) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.note);
    Compare(CallOf(c, {0, 1, 2}), 2);
    if (c.blocks == 1 && !c.flat) Compare(CallOf(c, {1}), 3);
    if (c.blocks == 1 && !c.flat) Compare(CallOf(c, {2, 0}), 4);
  }
}

// A row of scores has at least eight elements. A part may use 2 MiB of scores here.
TEST(AttentionProducts, SplitIntoPartsWhoseScoresFit) {
  const Case samples{"samples", 4, 1, 1, 1 << 13, 1, 1, 1}, heads{"heads of a sample", 1, 8, 4, 1 << 12, 1, 1, 1},
      side_by_side{"heads side by side", 4, 2, 2, 1 << 12, 1, 3, 4, true};
  const auto parts = [](const Case& c) { return *AttentionProductsOf(InType(CallOf(c, {0, 1, 2}), DType::kBfloat16)); };
  EXPECT_EQ(parts(samples).samples, 2);
  EXPECT_EQ(parts(heads).samples, 1);
  EXPECT_EQ(parts(heads).kv_heads, 2);
  EXPECT_EQ(parts(side_by_side).samples, 2);
  for (const Case& c : {samples, heads, side_by_side}) {
    SCOPED_TRACE(c.note);
    Compare(CallOf(c), 6);
    Compare(CallOf(c, {0, 1, 2}), 7);
  }
}

// A head whose scores do not fit is computed in blocks of queries.
TEST(AttentionProducts, SplitIntoBlocksWhoseScoresFit) {
  const Case long_one{"", 1, 1, 1, 40000, 4096, 64, 64};
  const AttentionProducts products = *AttentionProductsOf(CallOf(long_one, {0, 1, 2}));
  EXPECT_EQ(products.blocks.size(), 5U);
  EXPECT_EQ(products.blocks[1].first_query, 8192);
  EXPECT_EQ(products.blocks[1].keys, 4096);
  EXPECT_TRUE(products.adds);
  EXPECT_LE(products.matrix * 8, int64_t{256} << 20);
}

// Shapes of common models.
TEST(AttentionProducts, ShapesOfModels) {
  const Case bert{"", 64, 12, 12, 128, 128, 64, 64, true}, gpt{"", 16, 12, 12, 1024, 1024, 64, 64, true, {{"is_causal", kOne}}},
      vit{"", 64, 12, 12, 197, 197, 64, 64, true};
  const auto of = [](const Case& c, bool gradient) {
    return *AttentionProductsOf(CallOf(c, gradient ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{}));
  };
  const AttentionProducts b = of(bert, true), g = of(gpt, true), v = of(vit, false);
  EXPECT_EQ(b.samples, 16);
  EXPECT_TRUE(b.packed);
  EXPECT_FALSE(b.adds);
  EXPECT_EQ(b.Scores(b.blocks[0]).batch, 192);
  EXPECT_EQ(b.Scores(b.blocks[0]).alignment, 64);
  EXPECT_EQ(g.samples, 8);
  EXPECT_EQ(g.blocks.size(), 4U);
  EXPECT_EQ(g.blocks[2].keys, 768);
  EXPECT_TRUE(g.adds);
  EXPECT_EQ(v.row, 200);
  EXPECT_EQ(v.Result(v.blocks[0]).a_row, 200);
  EXPECT_EQ(v.Result(v.blocks[0]).k, 197);
  KernelCall tf32 = CallOf(bert);
  EXPECT_FALSE(of(bert, false).Scores(b.blocks[0]).allow_tf32);
  tf32.attributes.set("allow_tf32", kOne);
  EXPECT_TRUE(AttentionProductsOf(tf32)->Scores(b.blocks[0]).allow_tf32);
  EXPECT_TRUE(AttentionProductsOf(tf32)->Result(b.blocks[0]).allow_tf32);
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, tf32)->name, "cublas.Attention");
}

TEST(AttentionProducts, RejectUnsupportedCalls) {
  const auto why = [](const KernelCall& call) { return Rejection(*FindKernel(RowOf(call)), call); };
  const Case c{"", 2, 2, 2, 6, 9, 4, 4};
  EXPECT_EQ(why(CallOf(c)), "");
  EXPECT_EQ(why(InType(CallOf(c), DType::kFloat64)), "float64");
  KernelCall other = CallOf(c);
  other.inputs[6] = {DType::kInt64, {2}, {}};
  EXPECT_EQ(why(other), "input 6");
  other = CallOf(c);
  other.outputs.resize(4);
  other.outputs[3] = Float({2, 2, 6, 9});
  EXPECT_EQ(why(other), "output 3");
  Case masked = c;
  masked.mask = {6, 9};
  EXPECT_EQ(why(CallOf(masked, {0, 3})), "a gradient of input 3");
  Case blind = c;
  blind.q_length = 700;
  blind.attributes = {{"left_window_size", int64_t{3}}};
  EXPECT_EQ(why(CallOf(blind)), "queries that see no key");
  // These run without a library.
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, CallOf(blind))->name, "cuda.Attention");
}

}  // namespace
}  // namespace gradloom

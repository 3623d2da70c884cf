// Attention whose Q, K and V are parts of one operand gives the bits of attention with three operands, by every kernel. CUDA's own
// libraries may choose other algorithms for other strides: on a GPU their results agree up to rounding.
#include "tests/kernels/packed_attention.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/attention_products.h"
#include "tests/cuda/random_calls.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using packed_attention::FamilyOf;
using packed_attention::Pair;

// The row of the packed form that belongs to this row.
const KernelRow* PackedRowOf(const KernelRow& row, const KernelCall& packed) {
  const KernelRow* found = FindKernel(FamilyOf(row) + "gradloom." + packed.op);
  return found != nullptr && Rejection(*found, packed).empty() ? found : nullptr;
}

#ifdef ON_GPU
// cuDNN takes long to prepare a call.
constexpr int kRounds = 12;

double AllowedBy(const KernelRow& row, DType dtype) {
  if (row.name.starts_with("cuda.")) return 0;
  return dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat16 ? 0.01 : 0.06;
}
#else
constexpr int kRounds = 25;

double AllowedBy(const KernelRow&, DType) { return 0; }
#endif

TEST(CudaPackedAttention, GivesTheSameBits) {
  std::mt19937_64 random(SeedFromEnvironment().value_or(1));
  std::map<std::string, int> ran;
  for (int round = 0; round < kRounds; ++round) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
      const Pair pair(random, dtype, true);
      for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
        if (row->op != pair.separate.call.op || row->domain != pair.separate.call.domain || !Rejection(*row, pair.separate.call).empty())
          continue;
        const KernelRow* const packed = PackedRowOf(*row, pair.packed.call);
        ASSERT_NE(packed, nullptr) << row->name;
        ++ran[std::string(packed->name)];
        ASSERT_EQ(pair.Difference(RunKernel(*row, pair.separate.call, pair.separate.inputs),
                                  RunKernel(*packed, pair.packed.call, pair.packed.inputs), AllowedBy(*row, dtype)),
                  "")
            << row->name;
      }
    }
  }
  // Fewer rounds need not reach every row.
  if (kRounds < 25) return;
  for (const char* kernels : {"cudnn", "cublas", "cuda"}) {
    for (const char* op : {"Attention", "AttentionGrad", "AttentionDropout", "AttentionDropoutGrad"}) {
      const std::string row = std::string(kernels) + ".gradloom." + op;
      EXPECT_TRUE(FindKernel(row) == nullptr || ran[row] > 0) << row;
    }
  }
}

// Products in blocks of queries, which add to gradients of K and V that were set to zero, where they are or in scratch memory.
TEST(CudaPackedAttention, GivesTheSameBitsInBlocks) {
  std::mt19937_64 random(SeedFromEnvironment().value_or(1));
  int in_place = 0;
  for (int round = 0; round < 12; ++round) {
    const Pair pair(random, DType::kFloat32, false, 300);
    const auto products = AttentionProductsOf(pair.packed.call);
    ASSERT_TRUE(products.has_value());
    EXPECT_EQ(products->blocks.size(), 2U);
    in_place += products->gradient && !products->kv_gradients_apart() ? 1 : 0;
    const std::string own = pair.separate.call.domain.empty() ? "" : "gradloom.";
    const KernelRow &row = *FindKernel("cublas." + own + pair.separate.call.op),
                    &packed = *FindKernel(FamilyOf(row) + "gradloom." + pair.packed.call.op);
    ASSERT_EQ(pair.Difference(RunKernel(row, pair.separate.call, pair.separate.inputs),
                              RunKernel(packed, pair.packed.call, pair.packed.inputs), AllowedBy(row, DType::kFloat32)),
              "");
  }
  EXPECT_GT(in_place, 0);
}

// GPT-2's attention, 16 samples of 1,024 tokens, 12 heads of 64 elements: what cuDNN and cuBLASLt are told of the parts.
TEST(CudaPackedAttention, DescribesParts) {
  const std::vector<int64_t> shape{16, 12, 1024, 64};
  KernelCall call{.op = "Attention",
                  .domain = "gradloom",
                  .attributes = {{"packed", std::string("BTPHE")},
                                 {"y_order", std::string("BTHE")},
                                 {"q_shape", shape},
                                 {"k_shape", shape},
                                 {"v_shape", shape},
                                 {"is_causal", int64_t{1}}},
                  .inputs = {{DType::kBfloat16, {16384, 2304}, {}}, {}, {}},
                  .outputs = {{DType::kBfloat16, {16, 1024, 12, 64}, {}}}};
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, call)->name, "cudnn.gradloom.Attention");
  const DnnAttention a = *DnnAttentionOf(call);
  const std::vector<int64_t> strides{1024 * 2304, 64, 2304, 1};
  for (const DnnTensor* part : {&a.q, &a.k, &a.v}) {
    EXPECT_EQ(part->dims, shape);
    EXPECT_EQ(part->strides, strides);
  }
  EXPECT_EQ(a.q.first, 0);
  EXPECT_EQ(a.k.first, 768);
  EXPECT_EQ(a.v.first, 1536);
  EXPECT_EQ(a.o.strides, (std::vector<int64_t>{1024 * 768, 64, 768, 1}));
  // One sample, whose heads need no copies: products read the parts where they are.
  for (const char* name : {"q_shape", "k_shape", "v_shape"}) call.attributes.set(name, std::vector<int64_t>{1, 12, 1024, 60});
  call.inputs[0].shape = {1024, 2160};
  const AttentionProducts p = *AttentionProductsOf(call);
  EXPECT_FALSE(p.packed);
  const BlasProduct scores = p.Scores(p.blocks[0]);
  EXPECT_EQ(scores.a_row, 2160);
  EXPECT_EQ(scores.a_step, 60);
  // K starts 720 elements after Q, and heads are 120 bytes apart.
  EXPECT_EQ(scores.alignment, 8);
}

}  // namespace
}  // namespace gradloom

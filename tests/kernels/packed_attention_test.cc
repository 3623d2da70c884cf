// Attention whose Q, K and V are parts of one operand gives the bits of attention with three operands.
#include "tests/kernels/packed_attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/reference/reference.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

using packed_attention::Pair;

// Runs a kernel with memory that is filled with NaN patterns beforehand.
std::vector<Tensor> RunOnCpu(const KernelRow& row, const packed_attention::Call& c) {
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<Tensor> results;
  for (const Tensor& input : c.inputs) in.push_back(input.defined() ? input.data() : nullptr);
  for (const OperandType& type : c.call.outputs) {
    results.emplace_back(type.dtype, type.shape);
    std::memset(results.back().data(), 0xFF, static_cast<size_t>(results.back().bytes()));
    out.push_back(results.back().data());
  }
  Tensor scratch(DType::kUint8, {(row.scratch_bytes != nullptr ? row.scratch_bytes(c.call) : 0) + 1});
  std::memset(scratch.data(), 0xFF, static_cast<size_t>(scratch.bytes()));
  MakeCpuKernel(row, c.call)->Run(in.data(), out.data(), scratch.data(), nullptr);
  return results;
}

TEST(PackedAttention, ReferenceGivesTheSameBits) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 200; ++round) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Pair pair(random, dtype, true);
      ASSERT_EQ(pair.Difference(RunReference(pair.separate.call, pair.separate.inputs), RunReference(pair.packed.call, pair.packed.inputs)),
                "");
    }
  }
}

// By every kernel that serves a call: both forms of it, or neither.
TEST(PackedAttention, CpuKernelsGiveTheSameBits) {
  std::mt19937_64 random(TestSeed());
  std::map<std::string, int> ran;
  for (int round = 0; round < 150; ++round) {
    for (DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      // Sometimes several tiles of queries.
      Pair pair(random, dtype, dtype == DType::kFloat32, round % 10 == 0 ? 130 : 0);
      pair.separate.call.threads = pair.packed.call.threads = 1 + round % 3;
      std::map<std::string, const KernelRow*> packed_rows;
      for (const KernelRow* row : KernelRows(DeviceKind::kCpu)) {
        const bool serves = row->op == pair.packed.call.op && row->domain == "gradloom" && Rejection(*row, pair.packed.call).empty();
        if (serves) packed_rows.emplace(packed_attention::FamilyOf(*row), row);
      }
      for (const KernelRow* row : KernelRows(DeviceKind::kCpu)) {
        if (row->op != pair.separate.call.op || row->domain != pair.separate.call.domain || !Rejection(*row, pair.separate.call).empty())
          continue;
        const std::string family = packed_attention::FamilyOf(*row);
        if (family == "cpu.widened.") continue;  // chooses one of the others
        ASSERT_TRUE(packed_rows.contains(family)) << row->name;
        if (family == "reference." && dtype != DType::kFloat32) continue;
        ++ran[std::string(packed_rows[family]->name)];
        ASSERT_EQ(pair.Difference(RunOnCpu(*row, pair.separate), RunOnCpu(*packed_rows[family], pair.packed)), "") << row->name;
      }
    }
  }
  for (const char* row : {"cpu.gradloom.Attention", "cpu.AttentionGrad", "cpu.AttentionDropout", "cpu.AttentionDropoutGrad",
                          "cpu.bfloat16.gradloom.Attention", "cpu.bfloat16.AttentionGrad"})
    EXPECT_GT(ran[row], 0) << row;
}

// Malformed calls, as in a damaged plan, are rejected by every kernel that checks its operands.
TEST(PackedAttention, RejectsFormsThatDoNotFit) {
  const std::vector<int64_t> q{2, 4, 5, 8}, kv{2, 2, 5, 8};
  KernelCall call{
      .op = "Attention",
      .domain = "gradloom",
      .attributes = {{"packed", std::string("BTPHE")}, {"y_order", std::string("BTHE")}, {"q_shape", q}, {"k_shape", kv}, {"v_shape", kv}},
      .inputs = {{DType::kFloat32, {10, 64}, {}}, {}, {}},
      .outputs = {{DType::kFloat32, {2, 5, 4, 8}, {}}}};
  for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    SCOPED_TRACE(DeviceKindName(device));
    const KernelRow& row = *ChooseKernel(device, call);
    const auto refused = [&](const char* name, Attribute value) {
      KernelCall wrong = call;
      wrong.attributes.set(name, std::move(value));
      return !Rejection(row, wrong).empty();
    };
    EXPECT_EQ(Rejection(row, call), "");
    EXPECT_TRUE(refused("packed", std::string("BTPEH")));
    EXPECT_TRUE(refused("packed", std::string("BTTHE")));
    EXPECT_TRUE(refused("packed", std::string("BTHE")));
    // There are fewer heads of K than of Q, so the parts do not follow each other within a head.
    EXPECT_TRUE(refused("packed", std::string("BTHPE")));
    EXPECT_TRUE(refused("y_order", std::string("BTPHE")));
    EXPECT_TRUE(refused("q_shape", std::vector<int64_t>{2, 4, 5}));
    EXPECT_TRUE(refused("q_shape", std::vector<int64_t>{2, 3, 5, 8}));
    EXPECT_TRUE(refused("q_shape", std::vector<int64_t>{2, 4, -5, 8}));
    EXPECT_TRUE(refused("q_shape", std::vector<int64_t>{int64_t{1} << 62, 4, 5, 8}));
    EXPECT_TRUE(refused("k_shape", std::vector<int64_t>{2, 2, 5, 4}));
    EXPECT_TRUE(refused("v_shape", std::vector<int64_t>{2, 2, 5, 9}));
    KernelCall wrong = call;
    wrong.inputs[0].shape = {10, 63};
    EXPECT_NE(Rejection(row, wrong), "");
    wrong = call;
    wrong.inputs[1] = {DType::kFloat32, {2, 2, 5, 8}, {}};
    EXPECT_NE(Rejection(row, wrong), "");
  }
}

}  // namespace
}  // namespace gradloom

// Compares attention over tiles of queries with the reference kernel.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct Case {
  int64_t batch, q_heads, kv_heads, q_length, kv_length, size, v_size;
  bool flat = false;
  Attributes attributes = {};
  Shape mask = {};  // rank 0 means no mask
  DType mask_dtype = DType::kFloat32;
  bool lengths = false;
  bool drops = false;
};

const Attributes kCausal{{"is_causal", int64_t{1}}};

const Case kCases[] = {
    {2, 3, 3, 5, 7, 4, 6},
    {2, 3, 3, 5, 7, 4, 6, true},
    {1, 2, 2, 130, 130, 8, 8, false, kCausal},
    {2, 6, 2, 20, 20, 5, 3, true, {{"is_causal", int64_t{1}}, {"scale", 0.3}}},
    {1, 2, 1, 9, 70, 16, 40, false, {{"softcap", 1.5}, {"is_causal", int64_t{1}}}},
    {2, 2, 2, 6, 9, 4, 4, false, {}, {2, 1, 6, 9}},
    {2, 2, 2, 6, 9, 4, 4, true, {{"softcap", 2.0}}, {6, 9}, DType::kBool},
    {2, 4, 2, 6, 9, 4, 4, false, {}, {2, 4, 6, 5}},
    {2, 4, 2, 6, 9, 4, 4, false, kCausal, {1, 1, 1, 9}, DType::kBool},
    {1, 1, 1, 80, 90, 8, 8, false, {{"left_window_size", int64_t{3}}, {"right_window_size", int64_t{40}}}},
    {3, 2, 2, 4, 40, 8, 8, false, kCausal, {}, DType::kFloat32, true},
    {1, 1, 1, 1, 1, 1, 1},
};

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

Shape ShapeOf(const Case& c, int64_t heads, int64_t length, int64_t size) {
  return c.flat ? Shape{c.batch, length, heads * size} : Shape{c.batch, heads, length, size};
}

KernelCall CallOf(const Case& c) {
  KernelCall call{.op = "Attention", .domain = "", .attributes = c.attributes, .inputs = {}, .outputs = {}};
  if (c.flat) {
    call.attributes.set("q_num_heads", c.q_heads);
    call.attributes.set("kv_num_heads", c.kv_heads);
  }
  call.inputs = {Float(ShapeOf(c, c.q_heads, c.q_length, c.size)),
                 Float(ShapeOf(c, c.kv_heads, c.kv_length, c.size)),
                 Float(ShapeOf(c, c.kv_heads, c.kv_length, c.v_size)),
                 c.mask.rank() > 0 ? Plain(c.mask_dtype, c.mask) : OperandType{},
                 {},
                 {},
                 c.lengths ? Plain(DType::kInt64, {c.batch}) : OperandType{}};
  call.outputs = {Float(ShapeOf(c, c.q_heads, c.q_length, c.v_size))};
  return call;
}

// The index of a device's first sample within a batch that has seven samples more than the device.
constexpr int64_t kFirstSample = 2;

// The same with dropout: seed, batch number and first sample are the last operands.
KernelCall WithDropout(const Case& c, KernelCall call) {
  if (!c.drops) return call;
  call.op = call.op == "Attention" ? "AttentionDropout" : "AttentionDropoutGrad";
  call.domain = "gradloom";
  for (int i = 0; i < 3; ++i) call.inputs.push_back(Plain(DType::kInt64, {}));
  call.attributes.set("ratio", 0.3);
  call.attributes.set("origin", int64_t{77});
  call.attributes.set("samples", std::vector<int64_t>{c.batch + 7, c.batch, c.q_heads * c.q_length * c.kv_length});
  return call;
}

KernelCall ForwardOf(const Case& c) { return WithDropout(c, CallOf(c)); }

KernelCall GradientOf(const Case& c, std::vector<int64_t> wanted) {
  KernelCall call = CallOf(c);
  call.op = "AttentionGrad";
  call.domain = "gradloom";
  call.inputs.push_back(call.outputs[0]);
  call.inputs.resize(10);
  call.outputs.clear();
  for (int64_t i : wanted) call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
  call.attributes.set("wanted", std::move(wanted));
  return WithDropout(c, std::move(call));
}

// Every case, without and with dropout.
std::vector<Case> AllCases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  for (const Case& c : kCases) {
    cases.push_back(c);
    cases.back().drops = true;
  }
  return cases;
}

std::string RowOf(const Case& c, bool gradient) {
  return std::string("cpu.Attention") + (c.drops ? "Dropout" : "") + (gradient ? "Grad" : "");
}

// Sums of a few hundred products in another order. Some elements of a float mask are minus infinity; lengths lie in [0, keys].
Comparison How(const Case& c) {
  Comparison how{.absolute = 2e-5, .relative = 2e-5, .scale = 1, .low = -1, .high = 1};
  how.fill = [&c](int input, Tensor& tensor, std::mt19937_64& random) {
    if (tensor.dtype() == DType::kInt64 && input > 6) {
      tensor.as<int64_t>()[0] = input == 9 || input == 12 ? kFirstSample : static_cast<int64_t>(random() % 1000);
      return true;
    }
    if (input == 6) {
      for (int64_t& length : tensor.as<int64_t>()) length = static_cast<int64_t>(random() % static_cast<uint64_t>(c.kv_length + 1));
      return true;
    }
    if (input != 3 || tensor.dtype() != DType::kFloat32) return false;
    for (float& value : tensor.as<float>()) {
      value = random() % 3 == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(random() % 5) * 0.3F;
    }
    return true;
  };
  return how;
}

TEST(Attention, Forward) {
  std::mt19937_64 random(TestSeed());
  for (const Case& c : AllCases()) ExpectSameAsReference(ForwardOf(c), random, How(c), RowOf(c, false));
}

TEST(Attention, Gradient) {
  std::mt19937_64 random(TestSeed());
  for (const Case& c : AllCases()) {
    for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 2}, {0}, {1}, {2, 0}}) {
      ExpectSameAsReference(GradientOf(c, wanted), random, How(c), RowOf(c, true));
    }
  }
}

// For a trained mask per head.
TEST(Attention, MaskGradient) {
  const Case cases[] = {
      {2, 4, 2, 6, 9, 4, 4, false, {}, {2, 4, 6, 5}},
      {3, 2, 2, 6, 9, 4, 3, true, {{"scale", 0.3}}, {1, 2, 6, 9}},
      {3, 2, 2, 130, 130, 8, 8, false, kCausal, {2, 130, 130}},
      {2, 2, 1, 20, 33, 5, 5, false, {{"softcap", 1.5}}, {20, 33}},
      {3, 2, 2, 6, 9, 4, 4, false, {}, {2, 1, 9}},
      {2, 2, 2, 6, 9, 4, 4, false, {}, {1, 2, 6, 1}},
  };
  std::mt19937_64 random(TestSeed());
  for (Case c : cases) {
    for (bool drops : {false, true}) {
      c.drops = drops;
      for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 2, 3}, {3}, {1, 3}}) {
        ExpectSameAsReference(GradientOf(c, wanted), random, How(c), RowOf(c, true));
      }
    }
  }
}

KernelCall Lowered(KernelCall call, DType dtype) {
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.dtype == DType::kFloat32) operand.dtype = dtype;
    }
  }
  return call;
}

// For operands in 16 bits, also the mask, whose results are within `relative` of those of the widened operands.
Comparison HowInSixteenBits(const Case& c, DType dtype, double relative) {
  Comparison how = How(c);
  how.relative = relative;
  how.scale = 0.03;
  how.widen = true;
  how.fill = [&c, dtype](int input, Tensor& tensor, std::mt19937_64& from) {
    if (input != 3 || tensor.dtype() != dtype) return How(c).fill(input, tensor, from);
    Tensor wide(DType::kFloat32, tensor.shape());
    const bool filled = How(c).fill(input, wide, from);
    tensor = Converted(wide.view(), dtype);
    return filled;
  };
  return how;
}

const std::vector<int64_t> kWanted[] = {{0, 1, 2}, {0}, {2, 1}};

// The same sums as in float32, rounded once.
TEST(Attention, SixteenBits) {
  std::mt19937_64 random(TestSeed());
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const Case& c : AllCases()) {
      const Comparison how = HowInSixteenBits(c, dtype, dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7);
      ExpectSameAsReference(Lowered(ForwardOf(c), dtype), random, how, RowOf(c, false));
      for (const std::vector<int64_t>& wanted : kWanted)
        ExpectSameAsReference(Lowered(GradientOf(c, wanted), dtype), random, how, RowOf(c, true));
    }
  }
}

// By products of pairs, where probabilities and the gradients of scores are rounded to bfloat16 too.
TEST(Attention, BfloatPairs) {
  std::vector<Case> cases = AllCases();
  cases.push_back({1, 2, 1, 67, 200, 64, 48, true, kCausal});
  cases.push_back({1, 2, 2, 100, 100, 32, 33, false, {{"left_window_size", int64_t{40}}}});
  std::mt19937_64 random(TestSeed());
  for (const Case& c : cases) {
    Comparison how = HowInSixteenBits(c, DType::kBfloat16, 0x1p-6);
    how.scale = 1;  // rounding errors of terms that cancel
    const std::string row = "cpu.bfloat16." + RowOf(c, false).substr(4);
    ExpectSameAsReference(Lowered(ForwardOf(c), DType::kBfloat16), random, how, row);
    for (const std::vector<int64_t>& wanted : kWanted)
      ExpectSameAsReference(Lowered(GradientOf(c, wanted), DType::kBfloat16), random, how, row + "Grad");
  }
}

// A query without visible keys gives zero, and no gradient.
TEST(Attention, QueryWithoutVisibleKeys) {
  std::mt19937_64 random(TestSeed());
  Case c = kCases[5];
  Comparison how = How(c);
  how.fill = [](int input, Tensor& tensor, std::mt19937_64&) {
    if (input != 3) return false;
    for (float& value : tensor.as<float>()) value = -std::numeric_limits<float>::infinity();
    return true;
  };
  ExpectSameAsReference(CallOf(c), random, how, "cpu.Attention");
  ExpectSameAsReference(GradientOf(c, {0, 1, 2}), random, how, "cpu.AttentionGrad");
}

TEST(Attention, LeavesUnusualCallsToTheReference) {
  const auto chosen = [](const KernelCall& call) { return std::string(ChooseKernel(DeviceKind::kCpu, call)->name); };
  const Case& c = kCases[5];
  EXPECT_EQ(chosen(CallOf(c)), "cpu.Attention");
  KernelCall call = CallOf(c);
  call.inputs[4] = Float({2, 2, 3, 4});
  call.inputs[5] = Float({2, 2, 3, 4});
  EXPECT_EQ(chosen(call), "reference.Attention");
  EXPECT_EQ(chosen(GradientOf(c, {0, 3})), "reference.gradloom.AttentionGrad");
  // Invalid shapes, as in a hostile plan, are rejected.
  const KernelRow& row = *FindKernel("cpu.Attention");
  const auto refused = [&](size_t input, Shape shape) {
    KernelCall wrong = CallOf(c);
    wrong.inputs[input].shape = std::move(shape);
    return !Rejection(row, wrong).empty();
  };
  EXPECT_TRUE(refused(0, {2, 2, 6, 5}));
  EXPECT_TRUE(refused(1, {2, 2, 8, 4}));
  EXPECT_TRUE(refused(1, {2, 3, 9, 4}));
  EXPECT_TRUE(refused(2, {1, 2, 9, 4}));
  EXPECT_TRUE(refused(3, {2, 1, 6, 10}));
  EXPECT_TRUE(refused(3, {2, 2, 5, 9}));
  call = CallOf(c);
  call.outputs[0].shape = {2, 2, 6, 5};
  EXPECT_NE(Rejection(row, call), "");
  // So are invalid seeds and sample indices.
  Case dropped = c;
  dropped.drops = true;
  for (bool gradient : {false, true}) {
    const KernelCall sound = gradient ? GradientOf(dropped, {0, 1, 2}) : ForwardOf(dropped);
    const KernelRow& with_dropout = *FindKernel(RowOf(dropped, gradient));
    EXPECT_EQ(Rejection(with_dropout, sound), "");
    const size_t seed = sound.inputs.size() - 3;
    call = sound;
    call.inputs[seed].dtype = DType::kInt32;
    EXPECT_NE(Rejection(with_dropout, call), "");
    call = sound;
    call.inputs[seed + 1] = {};
    EXPECT_NE(Rejection(with_dropout, call), "");
    call = sound;
    call.inputs.resize(seed);
    EXPECT_NE(Rejection(with_dropout, call), "");
    call = sound;
    call.attributes.set("samples", std::vector<int64_t>{9, 0, 3});
    EXPECT_NE(Rejection(with_dropout, call), "");
  }
}

}  // namespace
}  // namespace gradloom

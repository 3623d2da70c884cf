// 16-bit elements on the CPU: conversions, pointwise programs over them, and kernels that widen them.
#include "runtime/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/isa/loops.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

std::vector<const Loops*> AllLoops() {
  std::vector<const Loops*> all;
  for (const char* name : {"baseline", "avx2", "avx512"}) {
    if (const Loops* loops = LoopsByName(name)) all.push_back(loops);
  }
  return all;
}

TEST(Conversions, EveryValueLoads) {
  std::vector<unsigned short> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<unsigned short>(i);
  std::vector<float> floats(bits.size());
  const auto n = static_cast<int64_t>(bits.size());
  const auto expect = [&](float (*convert)(uint16_t), const char* what) {
    for (size_t i = 0; i < bits.size(); ++i) {
      const float want = convert(bits[i]);
      const bool same = std::isnan(want) ? std::isnan(floats[i]) : std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(floats[i]);
      ASSERT_TRUE(same) << what << " " << i;
    }
  };
  for (const Loops* loops : AllLoops()) {
    loops->load_float16(bits.data(), floats.data(), n);
    expect(HalfToFloat, loops->name);
    loops->load_bfloat16(bits.data(), floats.data(), n);
    expect(Bfloat16ToFloat, loops->name);
  }
}

// Every 16-bit value, and floats around each: the value, the point half a step beyond it, and the floats next to both.
std::vector<float> AroundEveryValue(float (*convert)(uint16_t)) {
  std::vector<float> all;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float value = convert(static_cast<uint16_t>(i)), next = convert(static_cast<uint16_t>(i + 1));
    all.push_back(value);
    if (!std::isfinite(value) || !std::isfinite(next) || std::signbit(value) != std::signbit(next)) continue;
    const float middle = value + (next - value) / 2;
    for (float x : {value, middle}) {
      all.push_back(std::nextafter(x, std::numeric_limits<float>::infinity()));
      all.push_back(std::nextafter(x, -std::numeric_limits<float>::infinity()));
    }
    all.push_back(middle);
  }
  for (float x : {65519.99F, 65520.0F, 65520.01F, 3.3895314e38F, 3.4028235e38F, 1e-45F, 2.9802322e-8F, 2.9802326e-8F}) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}

TEST(Conversions, StoresRoundToNearestEven) {
  for (const Loops* loops : AllLoops()) {
    for (const bool brain : {false, true}) {
      const std::vector<float> floats = AroundEveryValue(brain ? Bfloat16ToFloat : HalfToFloat);
      std::vector<unsigned short> bits(floats.size());
      (brain ? loops->store_bfloat16 : loops->store_float16)(floats.data(), bits.data(), static_cast<int64_t>(floats.size()));
      for (size_t i = 0; i < floats.size(); ++i) {
        const uint16_t want = brain ? FloatToBfloat16(floats[i]) : FloatToHalf(floats[i]);
        if (std::isnan(floats[i])) {
          ASSERT_TRUE(std::isnan(brain ? Bfloat16ToFloat(bits[i]) : HalfToFloat(bits[i]))) << loops->name << " " << i;
        } else {
          ASSERT_EQ(bits[i], want) << loops->name << " " << floats[i];
        }
      }
    }
  }
}

class HalfTest : public testing::TestWithParam<DType> {
 protected:
  OperandType Low(Shape shape) const { return Plain(GetParam(), std::move(shape)); }
  OperandType Wide(Shape shape) const { return Plain(DType::kFloat32, std::move(shape)); }
  // Two float32 results may lie on different sides of a rounding boundary.
  double step() const { return GetParam() == DType::kFloat16 ? 0x1p-10 : 0x1p-7; }
  Comparison Near() const { return {.absolute = 1e-6, .relative = step(), .scale = 0.25, .low = -1, .high = 1}; }
};

TEST_P(HalfTest, PointwiseOperatorsBroadcast) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 20; ++round) {
    const Shape shape = RandomShape(random, 3, 1, round % 5 == 0 ? 40 : 9);
    const Shape row{shape[2]}, column{shape[0], 1, 1};
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min"}) {
      for (const Shape& b : {shape, row, column, Shape{}}) {
        ExpectSameAsReference({.op = op, .domain = "", .attributes = {}, .inputs = {Low(shape), Low(b)}, .outputs = {Low(shape)}}, random,
                              Near());
      }
    }
    for (const char* op : {"Relu", "Tanh", "Sigmoid", "Gelu", "Neg", "Erf"}) {
      ExpectSameAsReference({.op = op, .domain = "", .attributes = {}, .inputs = {Low(shape)}, .outputs = {Low(shape)}}, random, Near());
    }
    ExpectSameAsReference({.op = "Where",
                           .domain = "",
                           .attributes = {},
                           .inputs = {Plain(DType::kBool, row), Low(shape), Low(column)},
                           .outputs = {Low(shape)}},
                          random, Near());
    ExpectSameAsReference(
        {.op = "Less", .domain = "", .attributes = {}, .inputs = {Low(shape), Low(row)}, .outputs = {Plain(DType::kBool, shape)}}, random);
    ExpectSameAsReference({.op = "Cast", .domain = "", .attributes = {}, .inputs = {Low(shape)}, .outputs = {Wide(shape)}}, random,
                          {.absolute = 0, .relative = 0});
    ExpectSameAsReference({.op = "Cast", .domain = "", .attributes = {}, .inputs = {Wide(shape)}, .outputs = {Low(shape)}}, random,
                          {.absolute = 0, .relative = 0});
  }
}

TEST_P(HalfTest, ProgramsOfMixedElements) {
  std::mt19937_64 random(TestSeed());
  const PointwiseOp rounding = GetParam() == DType::kFloat16 ? PointwiseOp::kToFloat16 : PointwiseOp::kToBfloat16;
  PointwiseProgram program{.num_inputs = 3, .constants = {0.5F}};
  const int sum = program.Emit(rounding, program.Emit(PointwiseOp::kAdd, 0, 1));
  const int product = program.Emit(PointwiseOp::kMul, sum, 2);
  program.outputs = {sum, product, program.Emit(PointwiseOp::kGreater, product, 3)};
  for (const Shape& shape : {Shape{5, 7}, Shape{4, 3000}}) {
    KernelCall call{.op = "Fused",
                    .domain = "gradloom",
                    .attributes = program.ToAttributes(),
                    .inputs = {Low(shape), Low(Shape{shape[1]}), Wide(shape)},
                    .outputs = {Low(shape), Wide(shape), Plain(DType::kBool, shape)}};
    // A 16-bit element may not alias a 32-bit one, whatever the sizes of the tensors in bytes.
    ExpectSameAsReference(call, random, {.absolute = 0, .relative = 0}, "cpu.FusedMixed");
    call.inputs[2] = Low(shape);
    call.outputs = {Low(shape), Low(shape)};
    program.outputs = {sum, product};
    call.attributes = program.ToAttributes();
    ExpectSameAsReference(call, random, {.absolute = 0, .relative = 0}, "cpu.Fused");
    program.outputs.push_back(product + 1);
  }
}

// A rounding that the store repeats is omitted, but not one whose result is read. Inputs lie between the numbers of the type.
TEST_P(HalfTest, LastRoundings) {
  std::mt19937_64 random(TestSeed());
  const PointwiseOp rounding = GetParam() == DType::kFloat16 ? PointwiseOp::kToFloat16 : PointwiseOp::kToBfloat16;
  PointwiseProgram program{.num_inputs = 2, .constants = {3.0F}};
  const int read = program.Emit(rounding, program.Emit(PointwiseOp::kMul, 0, 1));
  const int last = program.Emit(rounding, program.Emit(PointwiseOp::kMul, read, 2));
  const int wide = program.Emit(rounding, program.Emit(PointwiseOp::kAdd, read, 1));
  const int twice = program.Emit(rounding, program.Emit(PointwiseOp::kSub, read, 1)), input = program.Emit(rounding, 0);
  program.outputs = {last, read, wide, twice, twice, input};
  const Shape shape{3, 700};
  ExpectSameAsReference({.op = "Fused",
                         .domain = "gradloom",
                         .attributes = program.ToAttributes(),
                         .inputs = {Wide(shape), Wide(shape)},
                         .outputs = {Low(shape), Low(shape), Wide(shape), Low(shape), Low(shape), Low(shape)}},
                        random, {.absolute = 0, .relative = 0});
}

TEST_P(HalfTest, KernelsThatWiden) {
  std::mt19937_64 random(TestSeed());
  Comparison near = Near();
  near.widen = true;
  const auto expect = [&](KernelCall call, const char* row) { ExpectSameAsReference(std::move(call), random, near, row); };
  expect({.op = "MatMul", .domain = "", .attributes = {}, .inputs = {Low({30, 70}), Low({70, 50})}, .outputs = {Low({30, 50})}},
         "cpu.widened.MatMul");
  expect({.op = "Gemm",
          .domain = "",
          .attributes = {{"transB", int64_t{1}}},
          .inputs = {Low({9, 33}), Low({17, 33}), Low({17})},
          .outputs = {Low({9, 17})}},
         "cpu.widened.Gemm");
  expect({.op = "Conv",
          .domain = "",
          .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
          .inputs = {Low({2, 5, 9, 8}), Low({6, 5, 3, 3}), Low({6})},
          .outputs = {Low({2, 6, 9, 8})}},
         "cpu.widened.Conv");
  expect({.op = "Softmax", .domain = "", .attributes = {}, .inputs = {Low({7, 90})}, .outputs = {Low({7, 90})}}, "cpu.widened.Softmax");
  expect({.op = "BatchNormTrain",
          .domain = "gradloom",
          .attributes = {{"epsilon", 1e-5}},
          .inputs = {Low({4, 3, 5, 5}), Wide({3}), Wide({3})},
          .outputs = {Low({4, 3, 5, 5}), Wide({3}), Wide({3}), Wide({3})}},
         "cpu.widened.BatchNormTrain");
}

// With channels innermost, parts are widened in the cache.
TEST_P(HalfTest, BatchNormalization) {
  std::mt19937_64 random(TestSeed());
  // Sums over all elements of a channel in another order, then one step of the type.
  Comparison near{.absolute = 1e-4, .relative = step(), .scale = 0.01, .low = -1, .high = 1, .widen = true};
  near.fill = [](int input, Tensor& tensor, std::mt19937_64& from) {
    if (input != 2 && input != 4) return false;
    if (tensor.dtype() != DType::kFloat32) return false;
    for (float& x : tensor.as<float>()) x = std::uniform_real_distribution<float>(0.5F, 1.5F)(from);
    return true;
  };
  for (const Shape& shape : {Shape{4, 3, 5, 5}, Shape{2, 130, 9, 7}, Shape{3, 17, 40}, Shape{1, 5000, 2, 2}}) {
    const Shape channels{shape[1]};
    KernelCall forward{.op = "BatchNormTrain",
                       .domain = "gradloom",
                       .attributes = {{"epsilon", 1e-5}},
                       .inputs = {Low(shape), Wide(channels), Wide(channels)},
                       .outputs = {Low(shape), Wide(channels), Wide(channels), Wide(channels)}};
    KernelCall gradient{.op = "BatchNormTrainGrad",
                        .domain = "gradloom",
                        .attributes = {},
                        .inputs = {Low(shape), Low(shape), Wide(channels), Wide(channels), Wide(channels)},
                        .outputs = {Low(shape), Wide(channels), Wide(channels)}};
    for (KernelCall* call : {&forward, &gradient}) {
      EXPECT_NE(Rejection(*FindKernel("cpu." + call->op), *call), "");
      ExpectSameAsReference(*call, random, near, "cpu.widened." + call->op);
      for (auto* operands : {&call->inputs, &call->outputs}) {
        for (OperandType& operand : *operands) {
          if (operand.shape == shape) operand.layout = ChannelsLast(shape.rank());
        }
      }
      ExpectSameAsReference(*call, random, near, "cpu." + call->op);
    }
  }
}

// The samples are widened in several parts, and the gradient of the weights sums over them.
TEST_P(HalfTest, ConvolutionsByParts) {
  std::mt19937_64 random(TestSeed());
  const Shape x{12, 16, 40, 40}, w{8, 16, 3, 3}, y{12, 8, 40, 40};
  const auto call = [&](const char* op, const char* domain, std::vector<OperandType> inputs, const Shape& output) {
    return KernelCall{.op = op,
                      .domain = domain,
                      .attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                      .inputs = std::move(inputs),
                      .outputs = {Low(output)}};
  };
  for (const KernelCall& plain : {call("Conv", "", {Low(x), Low(w), Low({8})}, y), call("ConvGradInput", "gradloom", {Low(y), Low(w)}, x),
                                  call("ConvGradWeight", "gradloom", {Low(x), Low(y)}, w)}) {
    const int64_t terms = plain.op == "ConvGradWeight" ? y.elements() / y[1] : w.elements();
    const Comparison near{
        .absolute = 1e-6 * std::sqrt(static_cast<double>(terms)) * 10, .relative = step(), .low = -1, .high = 1, .widen = true};
    const std::string name = "cpu.widened." + plain.op;
    const KernelRow& row = *FindKernel(name);
    // Twice as many samples give twice as many parts.
    KernelCall twice = plain;
    for (auto* operands : {&twice.inputs, &twice.outputs}) {
      for (OperandType& operand : *operands) {
        if (operand.shape.rank() == 4 && operand.shape[0] == x[0]) operand.shape[0] *= 2;
      }
    }
    EXPECT_EQ(row.scratch_bytes(twice), row.scratch_bytes(plain));
    ExpectSameAsReference(plain, random, near, name);
    KernelCall wished = plain;
    if (row.prefers(wished)) ExpectSameAsReference(wished, random, near, name);
  }
}

TEST_P(HalfTest, Layouts) {
  std::mt19937_64 random(TestSeed());
  const Layout blocked = Layout::FromString("0123:1x8");
  for (const Shape& shape : {Shape{2, 16, 5, 3}, Shape{2, 11, 4, 4}}) {
    for (const auto& [from, to] : {std::pair(Layout(), blocked), std::pair(blocked, Layout())}) {
      KernelCall call{.op = "Reorder", .domain = "gradloom", .attributes = {}, .inputs = {Low(shape)}, .outputs = {Low(shape)}};
      call.inputs[0].layout = from;
      call.outputs[0].layout = to;
      ExpectSameAsReference(call, random, {.absolute = 0, .relative = 0});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfTest, testing::Values(DType::kFloat16, DType::kBfloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace gradloom

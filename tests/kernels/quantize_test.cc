// Compares QuantizeLinear and DequantizeLinear with the reference kernels: saturation, ties, one scale per tensor and one per index of an
// axis.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// Scales of 1/4, 1/2 and 1, and multiples of 1/8: many quotients lie halfway between two integers, and some are out of range.
bool FillQuarters(int input, Tensor& tensor, std::mt19937_64& random) {
  if (tensor.dtype() != DType::kFloat32) return false;
  for (float& x : tensor.as<float>()) {
    x = input == 1 ? 0.25f * static_cast<float>(1 << random() % 3) : 0.125f * static_cast<float>(static_cast<int>(random() % 2000) - 1000);
  }
  return true;
}

TEST(Quantize, QuantizeAndDequantize) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x, scale;
    int64_t axis;
    bool zero;
  };
  const Case cases[] = {{{3, 5, 7}, {}, 1, true},    {{40000}, {1}, 0, false},  {{6, 4, 3, 3}, {6}, 0, true},
                        {{2, 8, 33}, {8}, 1, false}, {{5, 70}, {70}, -1, true}, {{1, 1}, {1}, 1, true}};
  for (const Case& c : cases) {
    for (DType dtype : {DType::kUint8, DType::kInt8, DType::kUint16, DType::kInt16}) {
      const OperandType x = Plain(DType::kFloat32, c.x), scale = Plain(DType::kFloat32, c.scale), q = Plain(dtype, c.x);
      KernelCall call{.op = "QuantizeLinear", .domain = "", .attributes = {{"axis", c.axis}}, .inputs = {x, scale}, .outputs = {q}};
      if (c.zero) call.inputs.push_back(Plain(dtype, c.scale));
      ExpectSameAsReference(call, random, {.absolute = 0, .relative = 0, .fill = FillQuarters}, "cpu.QuantizeLinear");
      call.op = "DequantizeLinear";
      call.inputs[0] = q;
      call.outputs[0] = x;
      ExpectSameAsReference(call, random, {.absolute = 0, .relative = 0, .fill = FillQuarters}, "cpu.DequantizeLinear");
    }
  }
}

// Blockwise scales and other element types are left to the reference kernel.
TEST(Quantize, LeavesOtherCallsToTheReference) {
  const auto chosen = [](const OperandType& x, const Shape& scale, DType dtype, Attributes attributes) {
    return std::string(ChooseKernel(DeviceKind::kCpu, {.op = "QuantizeLinear",
                                                       .domain = "",
                                                       .attributes = std::move(attributes),
                                                       .inputs = {x, {x.dtype, scale, {}}},
                                                       .outputs = {Plain(dtype, x.shape)}})
                           ->name);
  };
  const OperandType x = Plain(DType::kFloat32, {4, 6});
  EXPECT_EQ(chosen(x, {}, DType::kInt8, {}), "cpu.QuantizeLinear");
  EXPECT_NE(chosen(x, {4, 3}, DType::kInt8, {{"block_size", int64_t{2}}}), "cpu.QuantizeLinear");
  EXPECT_NE(chosen(x, {5}, DType::kInt8, {}), "cpu.QuantizeLinear");
  EXPECT_NE(chosen(x, {}, DType::kInt4, {}), "cpu.QuantizeLinear");
  EXPECT_NE(chosen(Plain(DType::kFloat16, {4, 6}), {}, DType::kInt8, {}), "cpu.QuantizeLinear");
}

}  // namespace
}  // namespace gradloom

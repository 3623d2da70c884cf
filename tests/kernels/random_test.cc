// Compares Dropout and random tensors with the reference kernels: the same numbers, whichever part of a batch a device has.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference.h"
#include "runtime/base/philox.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

struct Part {
  int64_t elements;
  std::vector<int64_t> samples;  // as in BatchSlice; empty for the whole batch
  int64_t first = 0;
};

const Part kParts[] = {{1, {}},
                       {7, {}},
                       {1024, {}},
                       {1030, {}},
                       {100003, {}},
                       {5 * 3 * 7, {12, 3, 7}, 4},
                       {3 * 5000, {9, 3, 5000}, 1},
                       {2 * 40 * 33, {100, 40, 33}, 59}};

// The inputs from `seeds` on are the seed, the batch number and the first sample.
Comparison WithSeeds(int seeds, int64_t first, Comparison how) {
  how.fill = [=](int input, Tensor& tensor, std::mt19937_64& random) {
    if (input < seeds) return false;
    tensor.as<int64_t>()[0] = input == seeds + 2 ? first : static_cast<int64_t>(random() % 1000);
    return true;
  };
  return how;
}

KernelCall Call(const std::string& op, std::vector<OperandType> inputs, std::vector<OperandType> outputs, const Part& part) {
  for (int i = 0; i < (part.samples.empty() ? 2 : 3); ++i) inputs.push_back(Plain(DType::kInt64, {}));
  KernelCall call{.op = op, .domain = "gradloom", .attributes = {{"origin", int64_t{77}}}, .inputs = inputs, .outputs = outputs};
  if (!part.samples.empty()) call.attributes.set("samples", part.samples);
  return call;
}

TEST(Random, Dropout) {
  std::mt19937_64 random(TestSeed());
  for (const Part& part : kParts) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
      const OperandType x = Plain(dtype, {part.elements});
      KernelCall call = Call("Dropout", {x}, {x, Plain(DType::kBool, x.shape)}, part);
      call.attributes.set("ratio", 0.3f);
      // After rounding to 16 bits the result may be the neighboring number.
      const double relative = dtype == DType::kFloat32 ? 1e-6 : dtype == DType::kFloat16 ? 1e-3 : 8e-3;
      ExpectSameAsReference(call, random, WithSeeds(1, part.first, {.absolute = 0, .relative = relative}), "cpu.Dropout");
      call.outputs.pop_back();
      ExpectSameAsReference(call, random, WithSeeds(1, part.first, {.absolute = 0, .relative = relative}), "cpu.Dropout");
    }
  }
}

TEST(Random, Tensors) {
  std::mt19937_64 random(TestSeed());
  for (const Part& part : kParts) {
    const OperandType y = Plain(DType::kFloat32, {part.elements});
    KernelCall uniform = Call("RandomUniform", {}, {y}, part);
    uniform.attributes.set("low", -2.0f);
    uniform.attributes.set("high", 3.0f);
    ExpectSameAsReference(uniform, random, WithSeeds(0, part.first, {.absolute = 1e-6}), "cpu.DrawUniform");
    KernelCall normal = Call("RandomNormal", {}, {y}, part);
    normal.attributes.set("mean", 0.5f);
    normal.attributes.set("scale", 2.0f);
    ExpectSameAsReference(normal, random, WithSeeds(0, part.first, {.absolute = 3e-6}), "cpu.DrawNormal");
  }
  KernelCall like{.op = "RandomNormalLike",
                  .domain = "",
                  .attributes = {{"seed", 5.0f}},
                  .inputs = {Plain(DType::kInt64, {3, 111})},
                  .outputs = {Plain(DType::kFloat32, {3, 111})}};
  ExpectSameAsReference(like, random, {.absolute = 3e-6}, "cpu.RandomNormalLike");
}

TEST(Random, EveryStatedSeedIsAKey) {
  static_assert(StatedSeed(7.5) == 7 && StatedSeed(-1) != StatedSeed(-2) && StatedSeed(1e30) != StatedSeed(1e31));
  static_assert(StatedSeed(std::numeric_limits<double>::quiet_NaN()) != StatedSeed(std::numeric_limits<double>::infinity()));
}

// Many numbers round to the end of a range where those of the type are coarse. The last range has only its beginning.
TEST(Random, UniformNumbersAreBelowTheEnd) {
  std::mt19937_64 random(TestSeed());
  const std::pair<double, double> ranges[] = {{0, 1}, {-1, 0}, {-3, -0.1}, {1, 1 + 0x1p-22}, {5, 5}};
  const Part part{1 << 14, {}};
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    for (const auto& [low, high] : ranges) {
      KernelCall call = Call("RandomUniform", {}, {Plain(dtype, {part.elements})}, part);
      call.attributes.set("low", low);
      call.attributes.set("high", high);
      const std::vector<Tensor> inputs = {Tensor::Scalar<int64_t>(3), Tensor::Scalar<int64_t>(4)};
      const Tensor made = RunReference(call, inputs)[0];
      for (int64_t i = 0; i < part.elements; ++i) {
        const double number = ElementAsDouble(made.view(), i);
        ASSERT_TRUE(number >= low && (number < high || number == low))
            << DTypeName(dtype) << " " << number << " of " << low << ", " << high;
      }
      if (dtype == DType::kFloat32) ExpectSameAsReference(call, random, WithSeeds(0, 0, {.absolute = 1e-8}), "cpu.DrawUniform");
    }
  }
}

// Operands of an untrusted plan that would be read past their ends, or used as divisors.
TEST(Random, RejectsInvalidOperands) {
  const OperandType x = Plain(DType::kFloat32, {6});
  const auto rejects = [](const KernelCall& call) { return Rejection(*FindKernel("cpu.Dropout"), call) != ""; };
  const KernelCall sound = Call("Dropout", {x}, {x}, {6, {}});
  EXPECT_FALSE(rejects(sound));
  KernelCall call = sound;
  call.inputs[1] = Plain(DType::kInt64, {0});
  EXPECT_TRUE(rejects(call));
  call = sound;
  call.inputs[2].dtype = DType::kInt32;
  EXPECT_TRUE(rejects(call));
  call = sound;
  call.outputs[0].shape = {7};
  EXPECT_TRUE(rejects(call));
  call = sound;
  call.attributes.set("samples", std::vector<int64_t>{4, 0, 3});
  EXPECT_TRUE(rejects(call));
}

}  // namespace
}  // namespace gradloom

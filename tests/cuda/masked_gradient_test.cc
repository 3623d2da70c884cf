// Gradients of batch normalizations behind masks, on random calls: the bits of a mask and a gradient by themselves, in both layouts and all
// forms, in place where a row permits it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "tests/cuda/random_calls.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using random_calls::Random;

constexpr size_t kDy = 0, kMore = 1, kY = 2, kX = 3, kMean = 5, kFactor = 7, kOffset = 8, kMasked = 3;

struct Call {
  KernelCall call;
  std::vector<Tensor> inputs;
};

Call Draw(Random& random) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16};
  const DType dtype = kTypes[random.Int(0, 2)];
  Shape shape{random.Int(1, 4), random.Coin() ? 8 * random.Int(1, 40) : random.Int(1, 20)};
  for (int64_t axis = random.Int(0, 2); axis > 0; --axis) shape.push_back(random.Coin() ? 8 * random.Int(1, 5) : random.Int(1, 30));
  const Layout layout = random.Coin() && shape.rank() > 2 ? ChannelsLast(shape.rank()) : Layout{};
  const bool kept = random.Coin(), sum = kept && random.Coin();
  Shape beside{shape[1]};
  for (int axis = 2; axis < shape.rank(); ++axis) beside.push_back(1);
  const Shape channels{shape[1]};
  const auto vector = [&](const Shape& of, double low, double high) { return random.Reals(of, low, high, DType::kFloat32); };
  const auto full = [&](bool present) { return present ? random.Reals(shape, -1, 1, dtype) : Tensor(); };
  Call drawn;
  drawn.inputs = {full(true),
                  full(sum),
                  full(kept),
                  full(true),
                  vector(channels, -1, 1),
                  vector(channels, -0.2, 0.2),
                  vector(channels, 0.5, 2),
                  kept ? Tensor() : vector(beside, -1, 1),
                  kept ? Tensor() : vector(beside, -0.3, 0.3)};
  KernelCall& call = drawn.call;
  call.op = "MaskedBatchNormGrad";
  call.domain = "gradloom";
  const OperandType x{dtype, shape, layout}, c{DType::kFloat32, channels, {}};
  for (const Tensor& input : drawn.inputs) {
    const Layout own = input.defined() && input.shape() == shape ? layout : Layout{};
    call.inputs.push_back(input.defined() ? OperandType{input.dtype(), input.shape(), own} : OperandType{});
  }
  call.outputs = {random.Int(0, 3) > 0 ? x : OperandType(), c, random.Coin() ? c : OperandType(), kept ? x : OperandType()};
  const int64_t bounds = random.Int(0, 2);
  if (bounds != 1) call.attributes.set("low", 0.0);
  if (bounds != 0) call.attributes.set("high", 0.25);
  return drawn;
}

// The masked gradient, computed element by element, and rounded where the operators of an unfused graph round.
Tensor Masked(const Call& drawn) {
  const Tensor &dy = drawn.inputs[kDy], &x = drawn.inputs[kX];
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double low = drawn.call.attributes.Float("low", kNone), high = drawn.call.attributes.Float("high", kNone);
  const auto number = [&](size_t input, int64_t i) {
    const Tensor& tensor = drawn.inputs[input];
    return tensor.defined() ? static_cast<float>(ElementAsDouble(tensor.view(), i)) : 0.0F;
  };
  std::vector<double> sums, values;
  const int64_t points = x.elements() / (x.shape()[0] * x.shape()[1]);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t c = i / points % x.shape()[1];
    const float product = (number(kX, i) - number(kMean, c)) * number(kFactor, c);
    sums.push_back(static_cast<double>(drawn.inputs[kMore].defined() ? number(kDy, i) + number(kMore, i) : number(kDy, i)));
    values.push_back(static_cast<double>(drawn.inputs[kY].defined() ? number(kY, i) : product + number(kOffset, c)));
  }
  const Tensor value = Converted(Tensor::From(values, x.shape()).view(), x.dtype());
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double y = ElementAsDouble(value.view(), i);
    if (y <= low || y >= high) sums[static_cast<size_t>(i)] = 0;
  }
  return Converted(Tensor::From(sums, dy.shape()).view(), dy.dtype());
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
}

TEST(MaskedGradient, HasTheBitsOfSeparateOperators) {
  random_calls::ForEachSeed(80, [](Random& random) {
    const Call drawn = Draw(random);
    const KernelCall& call = drawn.call;
    SCOPED_TRACE(random_calls::Describe(call) + " " + call.inputs[kX].layout.ToString());
    const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
    ASSERT_EQ(row.name, "cuda.gradloom.MaskedBatchNormGrad");
    KernelCall plain = call;
    plain.op = "BatchNormTrainGrad";
    plain.attributes = {};
    plain.inputs = {call.inputs[kX], call.inputs[kX], call.inputs[4], call.inputs[kMean], call.inputs[6]};
    plain.outputs.resize(3);
    const Tensor masked = Masked(drawn);
    std::vector<Tensor> wanted = RunKernel(*ChooseKernel(DeviceKind::kCuda, plain), plain,
                                           {masked, drawn.inputs[kX], drawn.inputs[4], drawn.inputs[kMean], drawn.inputs[6]});
    wanted.push_back(call.outputs[kMasked].present() ? masked : Tensor());
    const auto check = [&](const Aliasing* alias) {
      const std::vector<Tensor> got = RunKernel(row, call, drawn.inputs, alias);
      for (size_t k = 0; k < wanted.size(); ++k) EXPECT_TRUE(SameBits(wanted[k], got[k])) << "output " << k;
    };
    check(nullptr);
    for (const Aliasing& alias : row.may_alias) {
      SCOPED_TRACE("output " + std::to_string(alias.output) + " over input " + std::to_string(alias.input));
      if (call.outputs[static_cast<size_t>(alias.output)].present() && call.inputs[static_cast<size_t>(alias.input)].present())
        check(&alias);
    }
  });
}

// The oracle's own computation agrees with it.
TEST(MaskedGradient, AgreesWithTheReference) {
  random_calls::ForEachSeed(40, [](Random& random) {
    Call drawn = Draw(random);
    drawn.call = PlainCall(drawn.call);
    SCOPED_TRACE(random_calls::Describe(drawn.call));
    const std::vector<Tensor> wanted = RunReference(drawn.call, drawn.inputs);
    const std::vector<Tensor> got = RunKernel(*ChooseKernel(DeviceKind::kCuda, drawn.call), drawn.call, drawn.inputs);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (!wanted[k].defined()) continue;
      if (k == kMasked) {
        EXPECT_TRUE(SameBits(wanted[k], got[k]));
      }
      double largest = 1e-3;
      for (int64_t i = 0; i < wanted[k].elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(wanted[k].view(), i)));
      const double allowed = wanted[k].dtype() == DType::kFloat32 ? 1e-5 : wanted[k].dtype() == DType::kFloat16 ? 1e-3 : 8e-3;
      for (int64_t i = 0; i < wanted[k].elements(); ++i) {
        ASSERT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), allowed * largest)
            << "output " << k << " element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace gradloom

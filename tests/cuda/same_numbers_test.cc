// Numbers of which one rule decides, on the CPU and on the CUDA device: where 16-bit results are rounded, what NaN becomes, and which
// element is the nearest.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/cuda/random_calls.h"

namespace gradloom {
namespace {

using namespace random_calls;  // NOLINT: all of it

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor Doubles(const std::vector<double>& values, Shape shape, DType dtype) {
  return Converted(Tensor::From(values, std::move(shape)).view(), dtype);
}

// Compares with the reference, and the reference with `wanted`.
void Expect(const Case& c, const std::vector<double>& wanted) {
  Compare(c);
  const Tensor made = RunReference(c.call, c.inputs)[0];
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(ElementAsDouble(made.view(), static_cast<int64_t>(i)), wanted[i]) << Describe(c.call) << " [" << i << "]";
  }
}

// More operands than one launch takes. Sums in between are not finite in float16, or have more digits than 16 bits hold.
TEST(CudaSameNumbers, FoldsOfManyOperands) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (int count : {16, 17, 25, 40}) {
      const std::vector<Tensor> large(static_cast<size_t>(count), Doubles({5000, 4}, {2}, dtype));
      Expect(Case("Mean", "", large, {Out(dtype, {2})}), {ElementAsDouble(large[0].view(), 0), 4});
    }
  }
  ForEachSeed(6, [](Random& r) {
    std::vector<Tensor> inputs;
    for (int64_t left = r.Int(17, 60); left > 0; --left)
      inputs.push_back(r.Wholes(r.Coin() ? Shape{3, 5} : Shape{5}, -900, 900, DType::kFloat16));
    inputs.push_back(r.Wholes({3, 5}, -900, 900, DType::kFloat16));
    for (const char* op : {"Sum", "Max", "Min"}) Compare(Case(op, "", inputs, {Out(DType::kFloat16, {3, 5})}));
  });
}

// Every update is lost if the total is rounded after each, with few and with many lines along the axis.
TEST(CudaSameNumbers, ScatteredTotals) {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const double large = dtype == DType::kFloat16 ? 2048 : 256;
    const Tensor data = Doubles({large, 1}, {2}, dtype), zeros = Tensor::From(std::vector<int64_t>(64, 0), {64});
    const Tensor ones = Doubles(std::vector<double>(64, 1), {64}, dtype);
    const Attributes add{{"reduction", std::string("add")}};
    Expect(Case("ScatterElements", "", {data, zeros, ones}, {Out(dtype, {2})}, add), {large + 64, 1});
    const Tensor tuples = Tensor::From(std::vector<int64_t>(64, 0), {64, 1});
    Expect(Case("ScatterND", "", {data, tuples, ones}, {Out(dtype, {2})}, add), {large + 64, 1});
  }
  // All products and sums are exact in float32.
  ForEachSeed(8, [](Random& r) {
    const DType dtype = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const int64_t lines = r.Int(1, 5), length = r.Coin() ? r.Int(1, 20) : 80, extent = r.Int(1, 6);
    const bool adds = r.Coin() || length > 20;
    const Tensor indices = r.Wholes({length, lines}, 0, extent - 1), data = r.Wholes({extent, lines}, 200, 300, dtype);
    const Tensor updates = adds ? r.Wholes({length, lines}, -9, 9, dtype) : r.Wholes({length, lines}, 1, 1, dtype);
    Tensor factors = updates.Clone();
    if (!adds) factors = Doubles(std::vector<double>(static_cast<size_t>(length * lines), 1.5), {length, lines}, dtype);
    const Attributes attributes{{"axis", int64_t{0}}, {"reduction", std::string(adds ? "add" : "mul")}};
    Compare(Case("ScatterElements", "", {data, indices, factors}, {Out(dtype, {extent, lines})}, attributes));
  });
}

// The exponent has more digits than the type of the base.
TEST(CudaSameNumbers, PowersWithExponentsOfOtherTypes) {
  const auto power = [](double base, DType type, const Tensor& exponent) {
    return Case("Pow", "", {Doubles({base}, {1}, type), exponent}, {Out(type, {1})});
  };
  for (DType type : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    Expect(power(-1, type, Tensor::From(std::vector<int64_t>{257}, {1})), {-1});
    Expect(power(-1, type, Tensor::From(std::vector<int64_t>{16777217}, {1})), {-1});
    Expect(power(-2, type, Tensor::From(std::vector<int32_t>{5}, {1})), {-32});
    Expect(power(4, type, Tensor::From(std::vector<double>{1.5}, {1})), {8});
  }
  // 2^13.3 is 10085.8; with the exponent in bfloat16, 13.3125, it would be 10173.6.
  Expect(power(2, DType::kBfloat16, Tensor::From(std::vector<float>{13.3F}, {1})), {10112});
  Compare(power(3, DType::kFloat16, Tensor::From(std::vector<double>{2.2}, {1})), 0.01);
}

TEST(CudaSameNumbers, QuantizedNaN) {
  const Tensor x = Doubles({kNaN, 1, -1000}, {3}, DType::kFloat32), scale = Doubles({0.5}, {}, DType::kFloat32);
  const auto quantized = [&](DType to, int64_t zero) {
    return Case("QuantizeLinear", "", {x, scale, Converted(Tensor::From(std::vector<int64_t>{zero}, {}).view(), to)}, {Out(to, {3})});
  };
  Expect(quantized(DType::kInt8, 3), {-128, 5, -128});
  Expect(quantized(DType::kUint8, 130), {0, 132, 0});
  Expect(quantized(DType::kInt16, 0), {-32768, 2, -2000});
}

// The first NaN is the maximum, as for ArgMax.
TEST(CudaSameNumbers, HardmaxOfNaN) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    const Tensor x = Doubles({3, kNaN, 5, kNaN, kNaN, 1, 2, 3, -1, 7, 7, 2}, {3, 4}, dtype);
    Expect(Case("Hardmax", "", {x}, {Out(dtype, {3, 4})}), {0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0});
  }
}

// An element that is 0 has no direction.
TEST(CudaSameNumbers, GradientOfLpPoolAtZero) {
  const Tensor x = Doubles({0, -2, 3, 0}, {1, 1, 4}, DType::kFloat32), y = Doubles({2, 3}, {1, 1, 2}, DType::kFloat32);
  const Tensor dy = Doubles({1, 4}, {1, 1, 2}, DType::kFloat32);
  const Attributes attributes{{"p", int64_t{1}}, {"kernel_shape", Ints{2}}, {"strides", Ints{2}}};
  Expect(Case("LpPoolGrad", "gradloom", {x, y, dy}, {Out(DType::kFloat32, {1, 1, 4})}, attributes), {0, -1, 4, 0});
}

// Scores that are NaN come last, whatever their position.
TEST(CudaSameNumbers, SuppressionOfNaN) {
  ForEachSeed(8, [](Random& r) {
    const int64_t n = r.Int(2, 40);
    Tensor boxes = r.Reals({1, n, 4}, 0, 1, DType::kFloat32), scores = r.Reals({1, 2, n}, 0, 1, DType::kFloat32);
    for (float& value : scores.as<float>()) value = r.Int(0, 3) == 0 ? static_cast<float>(kNaN) : value;
    for (float& value : boxes.as<float>()) value = r.Int(0, 20) == 0 ? static_cast<float>(kNaN) : value;
    const Tensor most = Tensor::From(std::vector<int64_t>{n}, {}), overlap = Doubles({0.3}, {}, DType::kFloat32);
    Compare(Case("NonMaxSuppression", "gradloom", {boxes, scores, most, overlap}, {Out(DType::kInt64, {2 * n, 3}), Out(DType::kInt64, {})},
                 {{"bound", 2 * n}}));
  });
}

// NaN outside of an image of integers is the lowest one.
TEST(CudaSameNumbers, ResizeOutsideOfIntegers) {
  const Tensor x = Converted(Tensor::From(std::vector<int64_t>{1, 2, 3}, {3}).view(), DType::kInt32);
  const Attributes attributes{{"coordinate_transformation_mode", std::string("tf_crop_and_resize")}, {"extrapolation_value", kNaN}};
  const Tensor roi = Doubles({-1, 1}, {2}, DType::kFloat32), size = Tensor::From(std::vector<int64_t>{3}, {1});
  Expect(Case("Resize", "", {x, roi, Tensor(), size}, {Out(DType::kInt32, {3})}, attributes), {std::numeric_limits<int32_t>::min(), 1, 3});
}

// A corner that is no number is outside of the image, as is one at a great distance.
TEST(CudaSameNumbers, RegionsWithoutACorner) {
  ForEachSeed(4, [](Random& r) {
    const Tensor x = r.Reals({1, 2, 4, 5}, -1, 1, DType::kFloat32);
    const Tensor regions = Doubles({0, kNaN, 0, 3, 3, 0, 1, 1, kNaN, 2, 0, 0, 1, 1e30, 3, 0, -1e30, kNaN, 4, 4}, {4, 5}, DType::kFloat32);
    Compare(Case("MaxRoiPool", "", {x, regions}, {Out(DType::kFloat32, {4, 2, 2, 2})}, {{"pooled_shape", Ints{2, 2}}}));
  });
}

// The CPU's choices are recorded in tests/resize/resize_test.cc.
TEST(CudaSameNumbers, NearestElements) {
  for (const char* place : {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"}) {
    for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      for (int64_t n = 1; n <= 7; ++n) {
        std::vector<double> numbers;
        for (int64_t i = 0; i < n; ++i) numbers.push_back(static_cast<double>(i));
        for (float scale : {0.3F, 0.6F, 0.7F, 1.2F, 1.4F, 2.3F}) {
          const auto out = static_cast<int64_t>(std::floor(static_cast<float>(n) * scale));
          if (out == 0) continue;
          const Attributes attributes{{"mode", std::string("nearest")},
                                      {"coordinate_transformation_mode", std::string(place)},
                                      {"nearest_mode", std::string(nearest)}};
          SCOPED_TRACE(std::string(place) + " " + nearest + " " + std::to_string(n) + " by " + std::to_string(scale));
          const Tensor x = Doubles(numbers, {n}, DType::kFloat32);
          Compare(
              Case("Resize", "", {x, Tensor(), Tensor::From(std::vector<float>{scale}, {1})}, {Out(DType::kFloat32, {out})}, attributes));
          const Tensor size = Tensor::From(std::vector<int64_t>{out}, {1});
          Compare(Case("Resize", "", {x, Tensor(), Tensor(), size}, {Out(DType::kFloat32, {out})}, attributes).Known());
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradloom

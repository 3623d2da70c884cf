#include "compiler/passes/fixed_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace gradloom {
namespace {

Tensor Filled(const Shape& shape, const std::function<double(int64_t)>& f) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(f(i)));
  return Tensor::From<float>(values, shape);
}

Tensor Random(const Shape& shape) {
  std::mt19937 bits(7);
  std::normal_distribution<double> normal;
  return Filled(shape, [&](int64_t) { return normal(bits); });
}

double Angle(int64_t position, int64_t k) { return static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(k) / 4); }

TEST(FixedTensorsTest, PositionsAsSinesAndCosines) {
  const auto halves = [](int64_t i) { return i % 8 < 4 ? std::sin(Angle(i / 8, i % 8)) : std::cos(Angle(i / 8, i % 8 - 4)); };
  const auto turns = [](int64_t i) { return i % 2 == 0 ? std::sin(Angle(i / 8, i % 8 / 2)) : std::cos(Angle(i / 8, i % 8 / 2)); };
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{6, 8}, halves)));
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{1, 6, 8}, turns)));
  // A row for padding.
  EXPECT_TRUE(IsSinusoidTable(Filled(Shape{6, 8}, [&](int64_t i) { return i < 8 ? 0 : halves(i); })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [&](int64_t i) { return halves(i) + (i == 47 ? 0.1 : 0); })));
  EXPECT_FALSE(IsSinusoidTable(Random(Shape{6, 8})));
  // A row for each sample, on a circle by chance.
  const double row[] = {-0.5, -1.0 / 6, 1.0 / 6, 0.5};
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{1, 4, 4}, [&](int64_t i) { return row[i % 4]; })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [](int64_t) { return 1.0; })));
  EXPECT_FALSE(IsSinusoidTable(Filled(Shape{6, 8}, [](int64_t) { return 0.0; })));
}

TEST(FixedTensorsTest, RotationsInTwoTables) {
  const Tensor cosines = Filled(Shape{1, 1, 6, 8}, [](int64_t i) { return 1.3 * std::cos(Angle(i / 8, i % 4)); });
  const Tensor sines = Filled(Shape{1, 1, 6, 8}, [](int64_t i) { return 1.3 * std::sin(Angle(i / 8, i % 4)); });
  EXPECT_TRUE(IsRotation(cosines, sines));
  EXPECT_TRUE(IsRotation(sines, cosines));
  EXPECT_FALSE(IsRotation(cosines, cosines));
  EXPECT_FALSE(IsRotation(cosines, Random(cosines.shape())));
  // Two scales that nobody trained yet.
  const Tensor ones = Filled(Shape{64}, [](int64_t) { return 1.0; });
  EXPECT_FALSE(IsRotation(ones, ones));
}

TEST(FixedTensorsTest, Masks) {
  const auto made = [](std::vector<float> values) { return Tensor::From<float>(values, Shape{static_cast<int64_t>(values.size())}); };
  EXPECT_TRUE(LooksLikeMask(made({1, 0, 1}), true));
  EXPECT_FALSE(LooksLikeMask(made({1, 1, 1}), true));
  EXPECT_FALSE(LooksLikeMask(made({0, 0, 0}), true));
  EXPECT_FALSE(LooksLikeMask(made({1, 0, 0.5}), true));
  EXPECT_TRUE(LooksLikeMask(made({0, -1e9F, -INFINITY}), false));
  EXPECT_TRUE(LooksLikeMask(made({0, -100, 0}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -100, -101}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, -2, 0}), false));
  EXPECT_FALSE(LooksLikeMask(made({0, 0, 0}), false));
}

TEST(FixedTensorsTest, Names) {
  EXPECT_TRUE(IsModulePath("model.logit_scale"));
  EXPECT_TRUE(IsModulePath("layers.0.gate"));
  for (const char* name : {"val_3", "layers.0", "/Constant_1_output_0", "onnx::Mul_12", ".x", "x.", "model/add/y:0", "const.a-b"}) {
    EXPECT_FALSE(IsModulePath(name)) << name;
  }
  EXPECT_NE(FixedByName("backbone.bn1.running_var"), "");
  EXPECT_NE(FixedByName("inner.lifted_tensor_0"), "");
  EXPECT_EQ(FixedByName("backbone.bn1.weight"), "");
}

}  // namespace
}  // namespace gradloom

// Elements of at most eight bits: the value of each code, rounding, and packing in files.
#include "runtime/base/narrow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<DType> NarrowTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypes; ++i) {
    if (IsNarrow(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

TEST(Narrow, ThereAreTwelve) { EXPECT_EQ(NarrowTypes().size(), 12u); }

TEST(Narrow, EveryValueRoundsToItself) {
  for (DType dtype : NarrowTypes()) {
    for (int code = 0; code < 1 << NarrowBits(dtype); ++code) {
      const double value = NarrowValue(dtype, static_cast<uint8_t>(code));
      const uint8_t again = NarrowElement(dtype, value, {.saturate = false});
      if (value != value)
        EXPECT_TRUE(std::isnan(NarrowValue(dtype, again))) << DTypeName(dtype) << " " << code;
      else
        EXPECT_EQ(again, code) << DTypeName(dtype);
    }
  }
}

// Rounds to the nearest number, with ties to the even code.
TEST(Narrow, RoundsToTheNearest) {
  for (DType dtype : {DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz, DType::kFloat6E2M3,
                      DType::kFloat6E3M2, DType::kFloat4E2M1}) {
    const int positive = 1 << (NarrowBits(dtype) - 1);
    for (int code = 0; code + 1 < positive; ++code) {
      const double low = NarrowValue(dtype, static_cast<uint8_t>(code)), high = NarrowValue(dtype, static_cast<uint8_t>(code + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (low + high) / 2;
      EXPECT_EQ(NarrowElement(dtype, middle), code + code % 2) << DTypeName(dtype) << " " << middle;
      EXPECT_EQ(NarrowElement(dtype, std::nextafter(middle, low)), code) << DTypeName(dtype);
      EXPECT_EQ(NarrowElement(dtype, std::nextafter(middle, high)), code + 1) << DTypeName(dtype);
    }
  }
}

TEST(Narrow, OverflowSaturatesIfRequested) {
  struct Row {
    DType dtype;
    double largest, past;
  };
  for (const Row& row : {Row{DType::kFloat8E4M3Fn, 448, kNan}, Row{DType::kFloat8E4M3Fnuz, 240, kNan},
                         Row{DType::kFloat8E5M2, 57344, kInfinity}, Row{DType::kFloat8E5M2Fnuz, 57344, kNan}, Row{DType::kFloat4E2M1, 6, 6},
                         Row{DType::kFloat6E2M3, 7.5, 7.5}, Row{DType::kFloat6E3M2, 28, 28}}) {
    for (double value : {1e6, kInfinity}) {
      EXPECT_EQ(NarrowValue(row.dtype, NarrowElement(row.dtype, -value)), -row.largest) << DTypeName(row.dtype);
      const double past = NarrowValue(row.dtype, NarrowElement(row.dtype, value, {.saturate = false}));
      EXPECT_TRUE(past == row.past || (past != past && row.past != row.past)) << DTypeName(row.dtype) << " " << past;
    }
  }
}

TEST(Narrow, PowersOfTwoRoundInTheGivenMode) {
  const auto rounded = [](double value, NarrowRounding::Power power) {
    return NarrowValue(DType::kFloat8E8M0, NarrowElement(DType::kFloat8E8M0, value, {.power = power}));
  };
  EXPECT_EQ(rounded(1.1, NarrowRounding::Power::kUp), 2);
  EXPECT_EQ(rounded(1.1, NarrowRounding::Power::kNearest), 1);
  EXPECT_EQ(rounded(1.5, NarrowRounding::Power::kNearest), 2);
  EXPECT_EQ(rounded(1.9, NarrowRounding::Power::kDown), 1);
}

TEST(Narrow, IntegersKeepTheirLowBits) {
  EXPECT_EQ(NarrowValue(DType::kInt4, NarrowElement(DType::kInt4, -9)), 7);
  EXPECT_EQ(NarrowValue(DType::kUint4, NarrowElement(DType::kUint4, 17.9)), 1);
  EXPECT_EQ(NarrowValue(DType::kInt2, NarrowElement(DType::kInt2, -2)), -2);
}

TEST(Narrow, PackingRoundTrips) {
  for (DType dtype : NarrowTypes()) {
    for (int64_t n : {0, 1, 3, 4, 7, 64}) {
      std::vector<uint8_t> elements, again(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) elements.push_back(static_cast<uint8_t>((i * 37 + 11) & ((1 << NarrowBits(dtype)) - 1)));
      std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(dtype, n)));
      EXPECT_EQ(PackedBytes(dtype, n), (n * NarrowBits(dtype) + 7) / 8);
      PackNarrow(dtype, elements, packed.data());
      UnpackNarrow(dtype, packed.data(), again);
      EXPECT_EQ(elements, again) << DTypeName(dtype) << " " << n;
    }
  }
}

// ONNX's example: the first element is in the lowest bits.
TEST(Narrow, FirstElementIsInTheLowestBits) {
  const std::vector<uint8_t> elements{1, 2, 3};
  uint8_t packed[2] = {};
  PackNarrow(DType::kUint4, elements, packed);
  EXPECT_EQ(packed[0], 0x21);
  EXPECT_EQ(packed[1], 0x03);
}

TEST(Narrow, TensorsConvertBothWays) {
  const Tensor from = Tensor::From<float>({-8, -1, 0, 7}, {4});
  const Tensor narrow = Converted(from.view(), DType::kInt4);
  EXPECT_EQ(narrow.bytes(), 4);
  const Tensor back = Converted(narrow.view(), DType::kFloat32);
  EXPECT_TRUE(std::equal(back.as<float>().begin(), back.as<float>().end(), from.as<float>().begin()));
}

}  // namespace
}  // namespace gradloom

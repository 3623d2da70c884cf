// The functions of kernels/scalar/rounded.h, compared with libm in double. The hardware's approximations, of 2 ulps in float32, are those
// of libm here.
#include "kernels/scalar/rounded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace gradloom::scalar {
namespace {

constexpr double kRootHalf = 0.70710678118654752440, kInfinity = std::numeric_limits<double>::infinity();

double Normal(double x) { return 0.5 * std::erfc(-kRootHalf * x); }
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  const char* name;
  float (*rounded)(float);
  double (*exact)(double);
  double low, high;  // where results are neither subnormal nor infinite
  double tolerance;  // relative
};

const Case kCases[] = {
    {"Exp", [](float x) { return rounded::Exp(x); }, [](double x) { return std::exp(x); }, -87, 88, 8e-6},
    {"Expm1", [](float x) { return rounded::Expm1(x); }, [](double x) { return std::expm1(x); }, -20, 88, 8e-6},
    {"Erf", [](float x) { return rounded::Erf(x); }, [](double x) { return std::erf(x); }, -20, 20, 8e-6},
    {"Sigmoid", [](float x) { return rounded::Sigmoid(x); }, Logistic, -80, 80, 8e-6},
    {"Tanh", [](float x) { return rounded::Tanh(x); }, [](double x) { return std::tanh(x); }, -80, 80, 8e-6},
    {"Softplus", [](float x) { return rounded::Softplus(x); }, [](double x) { return std::log1p(std::exp(x)); }, -80, 80, 8e-6},
    {"Gelu", [](float x) { return rounded::Gelu(x); }, [](double x) { return x * Normal(x); }, -12.5, 40, 4e-5},
    {"GeluTanh", [](float x) { return rounded::GeluTanh(x); },
     [](double x) { return x * Logistic(1.59576912160573071176 * (x + 0.044715 * x * x * x)); }, -9, 40, 2e-5},
};

TEST(Rounded, IsCloserThanTheRoundingTo16Bits) {
  for (const Case& c : kCases) {
    double largest = 0, at = 0;
    for (int i = 0; i <= 1000000; ++i) {
      const auto x = static_cast<float>(c.low + (c.high - c.low) * i / 1000000);
      const double want = c.exact(static_cast<double>(x));
      const double error = std::abs(static_cast<double>(c.rounded(x)) - want) / std::max(std::abs(want), 1e-38);
      if (error > largest) largest = error, at = static_cast<double>(x);
    }
    EXPECT_LE(largest, c.tolerance) << c.name << "(" << at << ")";
  }
}

// At zero, infinities, numbers whose squares overflow, and NaN, results are those of math.h.
TEST(Rounded, HasTheLimitsOfTheExactFunctions) {
  using Pair = std::pair<float (*)(float), float (*)(float)>;
  const Pair pairs[] = {
      {[](float x) { return rounded::Exp(x); }, [](float x) { return Exp(x); }},
      {[](float x) { return rounded::Expm1(x); }, [](float x) { return Expm1(x); }},
      {[](float x) { return rounded::Erf(x); }, [](float x) { return Erf(x); }},
      {[](float x) { return rounded::Sigmoid(x); }, [](float x) { return Sigmoid(x); }},
      {[](float x) { return rounded::Tanh(x); }, [](float x) { return Tanh(x); }},
      {[](float x) { return rounded::Softplus(x); }, [](float x) { return Softplus(x); }},
      {[](float x) { return rounded::Gelu(x); }, [](float x) { return Gelu(x); }},
      {[](float x) { return rounded::GeluTanh(x); }, [](float x) { return GeluTanh(x); }},
  };
  const auto infinity = static_cast<float>(kInfinity);
  for (size_t k = 0; k < std::size(pairs); ++k) {
    for (const float x : {0.0f, -0.0f, 1e38f, -1e38f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      const float got = pairs[k].first(x), want = pairs[k].second(x);
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)) || std::abs(got - want) < 1e-7f * std::abs(want))
          << kCases[k].name << "(" << x << "): " << got << ", not " << want;
    }
  }
}

}  // namespace
}  // namespace gradloom::scalar

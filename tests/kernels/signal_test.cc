// Compares fast Fourier transforms with sums by definition.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

// Powers of two, products of small primes, primes, and products with large primes.
const int64_t kLengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 30, 49, 60, 64, 97, 100, 128, 210, 256, 441, 67, 134, 509};

// Sets the integer operands, by input.
Comparison With(std::vector<int64_t> ints) {
  return {.absolute = 0, .relative = 1.2e-7, .scale = 1e-3, .fill = [ints](int input, Tensor& tensor, std::mt19937_64&) {
            if (tensor.dtype() != DType::kInt64) return false;
            tensor.as<int64_t>()[0] = ints[static_cast<size_t>(input)];
            return true;
          }};
}

KernelCall Call(const std::string& op, std::vector<OperandType> inputs, Shape to, Attributes attributes) {
  KernelCall call{.op = op, .domain = "", .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {}};
  call.outputs = {Plain(DType::kFloat32, std::move(to))};
  return call;
}

OperandType Int() { return Plain(DType::kInt64, Shape{}); }

TEST(Signal, Dft) {
  std::mt19937_64 random(TestSeed());
  for (const int64_t n : kLengths) {
    SCOPED_TRACE(n);
    for (const int axis : {1, 2}) {
      const auto shape = [&](int64_t extent, int64_t parts) { return axis == 1 ? Shape{3, extent, 7, parts} : Shape{5, 4, extent, parts}; };
      const int64_t half = n / 2 + 1;
      for (const int64_t inverse : {0, 1}) {
        for (const int64_t parts : {1, 2}) {
          ExpectSameAsReference(
              Call("DFT", {Plain(DType::kFloat32, shape(n, parts)), OperandType(), Int()}, shape(n, 2), {{"inverse", inverse}}), random,
              With({0, 0, axis}), "cpu.DFT");
        }
      }
      // Real input to a one-sided spectrum, and back.
      ExpectSameAsReference(Call("DFT", {Plain(DType::kFloat32, shape(n, 1)), Int(), Int()}, shape(half, 2), {{"onesided", int64_t{1}}}),
                            random, With({0, n, axis - 4}), "cpu.DFT");
      ExpectSameAsReference(Call("DFT", {Plain(DType::kFloat32, shape(half, 2)), Int(), Int()}, shape(n, 1),
                                 {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}}),
                            random, With({0, n, axis}), "cpu.DFT");
      // Truncated input, and input padded with zeros.
      ExpectSameAsReference(Call("DFT", {Plain(DType::kFloat32, shape(n + 3, 2)), Int(), Int()}, shape(n, 2), {}), random,
                            With({0, n, axis}), "cpu.DFT");
      ExpectSameAsReference(Call("DFT", {Plain(DType::kFloat32, shape(half, 1)), Int(), Int()}, shape(n, 2), {}), random,
                            With({0, n, axis}), "cpu.DFT");
    }
  }
}

TEST(Signal, Stft) {
  std::mt19937_64 random(TestSeed());
  for (const int64_t n : kLengths) {
    SCOPED_TRACE(n);
    for (const int64_t onesided : {0, 1}) {
      for (const int64_t step : {int64_t{1}, n / 2 + 1}) {
        const int64_t frames = 19, samples = (frames - 1) * step + n, bins = onesided != 0 ? n / 2 + 1 : n;
        const OperandType real = Plain(DType::kFloat32, Shape{2, samples, 1}), window = Plain(DType::kFloat32, Shape{n});
        const Attributes attributes{{"onesided", onesided}};
        ExpectSameAsReference(Call("STFT", {real, Int(), window, OperandType()}, Shape{2, frames, bins, 2}, attributes), random,
                              With({0, step}), "cpu.STFT");
        ExpectSameAsReference(Call("STFT", {real, Int(), OperandType(), Int()}, Shape{2, frames, bins, 2}, attributes), random,
                              With({0, step, 0, n}), "cpu.STFT");
        if (onesided != 0) continue;
        ExpectSameAsReference(
            Call("STFT", {Plain(DType::kFloat32, Shape{2, samples + 3, 2}), Int(), window, Int()}, Shape{2, frames, bins, 2}, attributes),
            random, With({0, step, 0, n}), "cpu.STFT");
      }
    }
  }
}

}  // namespace
}  // namespace gradloom

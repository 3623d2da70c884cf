// Compares convolutions along one axis with long windows, computed by polynomial products, with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/ring.h"
#include "kernels/reference/reference.h"
#include "runtime/base/tensor.h"
#include "runtime/base/windows.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

// Sums of many products: the tolerance of an element is relative to the largest element.
Comparison Close() { return {.absolute = 1e-4, .relative = 1e-4, .scale = 0.1}; }

struct Case {
  Shape x;
  int64_t outputs, taps;
  std::vector<int64_t> pads;
  int64_t group = 1;

  Attributes attributes() const { return {{"pads", pads}, {"group", group}}; }
  Shape w() const { return {outputs, x[1] / group, taps}; }
  Shape y() const { return {x[0], outputs, WindowsOf(attributes(), x, {taps}).Count(0, x[2], false)}; }

  KernelCall Forward(bool bias) const {
    std::vector<OperandType> inputs = {Float(x), Float(w())};
    if (bias) inputs.push_back(Float({outputs}));
    return {.op = "Conv", .domain = "", .attributes = attributes(), .inputs = inputs, .outputs = {Float(y())}};
  }
  KernelCall GradInput() const {
    return {
        .op = "ConvGradInput", .domain = "gradloom", .attributes = attributes(), .inputs = {Float(y()), Float(w())}, .outputs = {Float(x)}};
  }
  KernelCall GradWeight() const {
    return {.op = "ConvGradWeight",
            .domain = "gradloom",
            .attributes = attributes(),
            .inputs = {Float(x), Float(y())},
            .outputs = {Float(w())}};
  }
};

// A single block with padding around it, blocks with a shorter last one, rows of several blocks in parts, channels that fill no vector or
// several, groups, even and odd windows, no padding, more padding than the window is long, and windows longer than the input.
TEST(LongConvolution, MatchesTheReference) {
  std::mt19937_64 random(TestSeed());
  const Case cases[] = {{{2, 96, 60}, 96, 128, {64, 64}, 2},  {{3, 40, 100}, 24, 95, {47, 47}, 2}, {{2, 16, 700}, 32, 31, {15, 15}},
                        {{4, 48, 150}, 32, 64, {0, 0}, 2},    {{2, 20, 90}, 35, 40, {45, 60}},     {{35, 16, 200}, 16, 48, {47, 0}},
                        {{2, 32, 30}, 16, 100, {90, 60}, 2},  {{5, 18, 333}, 17, 77, {38, 38}},    {{3, 64, 400}, 64, 128, {64, 64}, 4},
                        {{2, 16, 1500}, 16, 300, {150, 149}}, {{9, 8, 260}, 16, 33, {16, 16}},     {{2, 32, 47}, 32, 16, {0, 15}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.x.ToString() + " " + c.w().ToString());
    ExpectSameAsReference(c.Forward(true), random, Close(), "cpu.LongConv");
    ExpectSameAsReference(c.Forward(false), random, Close(), "cpu.LongConv");
    ExpectSameAsReference(c.GradInput(), random, Close(), "cpu.LongConvGradInput");
    ExpectSameAsReference(c.GradWeight(), random, Close(), "cpu.LongConvGradWeight");
  }
}

// Random extents among those that the kernel serves.
TEST(LongConvolution, MatchesTheReferenceForRandomExtents) {
  std::mt19937_64 random(TestSeed());
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int served = 0;
  for (int round = 0; round < 400 && served < 40; ++round) {
    const int64_t group = between(1, 3), taps = between(8, 90), length = between(1, 300);
    const Case c = {
        {between(1, 9), group * between(4, 40), length}, group * between(4, 40), taps, {between(0, taps + 5), between(0, taps + 5)}, group};
    if (c.pads[0] + length + c.pads[1] < taps) continue;
    for (const KernelCall& call : {c.Forward(true), c.GradInput(), c.GradWeight()}) {
      const std::string name = "cpu.Long" + call.op;
      if (!Rejection(*FindKernel(name), call).empty()) continue;
      ++served;
      SCOPED_TRACE(c.x.ToString() + " " + c.w().ToString() + " pads " + std::to_string(c.pads[0]) + " " + std::to_string(c.pads[1]));
      ExpectSameAsReference(call, random, Close(), name);
    }
  }
  EXPECT_GE(served, 40);
}

// The kernel is chosen where it saves most of the products; the operands stay plain.
TEST(LongConvolution, IsChosenWhereItSavesProducts) {
  const auto chosen = [](const KernelCall& call) { return std::string(ChooseKernel(DeviceKind::kCpu, call)->name); };
  const Case position = {{4, 768, 149}, 768, 128, {64, 64}, 16};
  EXPECT_EQ(chosen(position.Forward(true)), "cpu.LongConv");
  EXPECT_EQ(chosen(position.GradInput()), "cpu.LongConvGradInput");
  EXPECT_EQ(chosen(position.GradWeight()), "cpu.LongConvGradWeight");
  EXPECT_EQ(FindKernel("cpu.LongConv")->prefers, nullptr);

  const auto refused = [](const Case& c, Attributes more = {}) {
    KernelCall call = c.Forward(false);
    for (const auto& [name, value] : more) call.attributes.set(name, value);
    return Rejection(*FindKernel("cpu.LongConv"), call);
  };
  EXPECT_EQ(refused(position), "");
  EXPECT_NE(refused({{4, 64, 200}, 64, 3, {1, 1}}), "") << "short windows";
  EXPECT_NE(refused({{4, 64, 200}, 64, 65, {32, 32}, 64}), "") << "a filter for each channel";
  EXPECT_NE(refused({{1, 768, 4}, 768, 128, {64, 63}, 16}), "") << "few points";
  KernelCall strided = position.Forward(false);
  strided.attributes.set("strides", std::vector<int64_t>{2});
  strided.outputs[0].shape[2] = 75;
  EXPECT_NE(Rejection(*FindKernel("cpu.LongConv"), strided), "");
  KernelCall half = position.Forward(false);
  half.inputs[0].dtype = half.inputs[1].dtype = half.outputs[0].dtype = DType::kBfloat16;
  EXPECT_NE(Rejection(*FindKernel("cpu.LongConv"), half), "");
}

// The relative root-mean-square error of a kernel against the float64 reference, for normally distributed operands.
double ErrorOf(const std::string& name, const KernelCall& call, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Tensor> inputs, wide;
  std::vector<const void*> in;
  KernelCall exact = call;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.emplace_back(DType::kFloat32, call.inputs[i].shape);
    for (float& value : inputs.back().as<float>()) value = normal(random);
    wide.push_back(Converted(inputs.back().view(), DType::kFloat64));
    exact.inputs[i].dtype = DType::kFloat64;
  }
  for (const Tensor& input : inputs) in.push_back(input.data());
  exact.outputs[0].dtype = DType::kFloat64;
  const Tensor wanted = std::move(RunReference(exact, wide)[0]);
  const KernelRow& row = *FindKernel(name);
  Tensor got(DType::kFloat32, call.outputs[0].shape), scratch(DType::kUint8, {row.scratch_bytes(call) + 1});
  void* const out[] = {got.data()};
  MakeCpuKernel(row, call)->Run(in.data(), out, scratch.data(), nullptr);
  double error = 0, size = 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = ElementAsDouble(wanted.view(), i), b = ElementAsDouble(got.view(), i);
    error += (a - b) * (a - b), size += a * a;
  }
  return std::sqrt(error / size);
}

// Accuracy is not sacrificed: sums of many products round more than the transforms do.
TEST(LongConvolution, IsAsAccurateAsTheLibrary) {
  const Case cases[] = {{{4, 96, 149}, 96, 128, {64, 64}, 2}, {{4, 64, 400}, 64, 31, {15, 15}}, {{2, 32, 1200}, 32, 300, {299, 0}, 2}};
  for (const Case& c : cases) {
    for (const KernelCall& call : {c.Forward(false), c.GradInput(), c.GradWeight()}) {
      const double ours = ErrorOf("cpu.Long" + call.op, call, TestSeed()), library = ErrorOf("onednn." + call.op, call, TestSeed());
      EXPECT_LT(ours, 4e-7) << call.op << " " << c.x.ToString();
      EXPECT_LT(ours, 2 * library) << call.op << " " << c.x.ToString();
    }
  }
}

// Coefficients of polynomial products, for every supported number of elements, compared with float64 sums.
TEST(Ring, Products) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<float> normal;
  const Loops& loops = BestLoops();
  const int64_t lines = loops.ring_lines;
  int halves = 0;
  for (int64_t half = Ring::HalfFor(1); half <= 1024; half = Ring::HalfFor(half + 1), ++halves) {
    const Ring ring(half);
    const int64_t n = 2 * half, taps = std::max<int64_t>(n / 3, 1), length = n;
    std::vector<float> x(static_cast<size_t>(length)), w(static_cast<size_t>(lines * taps)), y(static_cast<size_t>(lines * n));
    for (float& value : x) value = normal(random);
    for (float& value : w) value = normal(random);
    std::vector<float> x_values(static_cast<size_t>(ring.floats())), w_values(x_values), sums(x_values);
    ring.Load(x.data(), length, 1, length, 0, false, x_values.data());
    ring.Load(w.data(), taps, lines, taps, 0, false, w_values.data());
    loops.ring_products({.elements = half,
                         .terms = 1,
                         .rows = 1,
                         .v = w_values.data(),
                         .v_step = 0,
                         .s = x_values.data(),
                         .s_row = 0,
                         .c = sums.data(),
                         .c_row = 0,
                         .adds = false});
    ring.Store(sums.data(), lines, n, nullptr, y.data(), n);
    double error = 0, size = 0;
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t v = 0; v < n; ++v) {
        double wanted = 0;
        for (int64_t k = 0; k < taps; ++k) {
          const double product = static_cast<double>(x[static_cast<size_t>((v + k) % n)]) * w[static_cast<size_t>(line * taps + k)];
          wanted += v + k < n ? product : -product;  // z^n = -1
        }
        const double got = y[static_cast<size_t>(line * n + v)];
        error += (got - wanted) * (got - wanted), size += wanted * wanted;
      }
    }
    EXPECT_LT(std::sqrt(error / size), 4e-7) << half;
  }
  EXPECT_GE(halves, 16);
}

}  // namespace
}  // namespace gradloom

// Compares grouped convolutions whose channels do not fill whole vectors with the reference kernels.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/isa/loops.h"
#include "runtime/base/windows.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

struct Case {
  Shape x;
  int64_t outputs, group;
  std::vector<int64_t> kernel, strides, pads, dilations;

  Attributes attributes() const { return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"group", group}}; }
  Shape w() const {
    Shape w{outputs, x[1] / group};
    for (const int64_t extent : kernel) w.push_back(extent);
    return w;
  }
  Shape y() const {
    const Windows windows = WindowsOf(attributes(), x, kernel);
    Shape y{x[0], outputs};
    for (int i = 0; i < windows.rank(); ++i) y.push_back(windows.Count(i, x[i + 2], false));
    return y;
  }
  std::vector<KernelCall> Calls() const {
    const auto call = [&](const char* op, const char* domain, std::vector<OperandType> inputs, const Shape& output) {
      return KernelCall{.op = op, .domain = domain, .attributes = attributes(), .inputs = std::move(inputs), .outputs = {Float(output)}};
    };
    std::vector<KernelCall> calls = {
        call("Conv", "", {Float(x), Float(w()), Float({outputs})}, y()), call("Conv", "", {Float(x), Float(w())}, y()),
        call("ConvGradInput", "gradloom", {Float(y()), Float(w())}, x), call("ConvGradWeight", "gradloom", {Float(x), Float(y())}, w())};
    // The transposed convolution, with an output of just the size that its windows reach.
    Shape back = x;
    const Windows windows = WindowsOf(attributes(), x, kernel);
    for (size_t i = 0; i < kernel.size(); ++i) {
      const int axis = static_cast<int>(i) + 2;
      back[axis] = (y()[axis] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - windows.pads_begin[i] - windows.pads_end[i];
    }
    calls.push_back(call("ConvTranspose", "", {Float(y()), Float(w()), Float({x[1]})}, back));
    return calls;
  }
};

// Groups whose channels fill no vector, one or several; one and two spatial axes; strides, dilations, rows and columns outside all windows;
// several images in a chunk and an image's rows in several chunks; weights plain and in another layout.
TEST(GroupedConvolution, MatchesTheReference) {
  std::mt19937_64 random(TestSeed());
  const std::vector<int64_t> one{1, 1};
  const Case cases[] = {{{3, 96, 20, 20}, 96, 4, {3, 3}, one, {1, 1, 1, 1}, one},
                        {{2, 40, 9, 12}, 88, 4, {3, 5}, {2, 1}, {1, 2, 0, 1}, one},
                        {{2, 22, 21, 30}, 36, 2, {4, 4}, {2, 3}, {1, 1, 1, 1}, one},
                        {{1, 66, 17, 13}, 18, 3, {3, 3}, one, {2, 4, 2, 1}, {2, 3}},
                        {{5, 60, 7, 7}, 36, 6, {1, 1}, {2, 2}, {0, 0, 0, 0}, one},
                        {{2, 68, 300}, 74, 2, {9}, {1}, {8, 0}, {1}},
                        {{3, 24, 41}, 40, 4, {5}, {3}, {2, 2}, {2}},
                        {{1, 72, 3, 4}, 72, 2, {5, 5}, one, {2, 2, 2, 2}, one}};
  int served = 0;
  for (const Case& c : cases) {
    for (KernelCall& call : c.Calls()) {
      const std::string name = "cpu.Grouped" + call.op;
      EXPECT_NE(Rejection(*FindKernel(name), call), "") << "plain operands";
      for (auto* operands : {&call.inputs, &call.outputs}) {
        for (OperandType& operand : *operands) {
          if (operand.shape.rank() > 1 && operand.shape != c.w()) operand.layout = ChannelsLast(operand.shape.rank());
        }
      }
      if (!Rejection(*FindKernel(name), call).empty()) continue;
      ++served;
      SCOPED_TRACE(c.x.ToString() + " " + c.w().ToString());
      EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, name);
      const Comparison close = {.absolute = 1e-4, .relative = 1e-4, .scale = 0.1};
      ExpectSameAsReference(call, random, close, name);
      OperandType& w = call.op == "ConvGradWeight" ? call.outputs[0] : call.inputs[1];
      w.layout = {.order = c.w().rank() == 4 ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{0, 2, 1}, .blocks = {{0, 8}}};
      ExpectSameAsReference(call, random, close, name);
    }
  }
  // For which cases the library itself is vectorized depends on the instruction set.
  const std::string_view isa = BestLoops().name;
  EXPECT_GE(served, isa == "avx512" ? 20 : isa == "avx2" ? 10 : 0);
}

// In the layouts that a plain convolution prefers. The library runs where it is vectorized for a group's channels.
TEST(GroupedConvolution, RunsWhereTheLibraryIsNotVectorized) {
  if (BestLoops().name != std::string_view("avx512")) GTEST_SKIP() << "no AVX-512";
  const std::vector<int64_t> one{1, 1}, pads{1, 1, 1, 1};
  const Case odd = {{2, 96, 16, 16}, 96, 4, {3, 3}, one, pads, one}, whole = {{2, 64, 16, 16}, 64, 4, {3, 3}, one, pads, one};
  for (KernelCall& call : odd.Calls()) {
    EXPECT_TRUE(FindKernel("onednn." + call.op)->prefers(call)) << call.op;
    EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, "cpu.Grouped" + call.op);
  }
  for (KernelCall& call : whole.Calls()) {
    ASSERT_TRUE(FindKernel("onednn." + call.op)->prefers(call)) << call.op;
    EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, "onednn." + call.op);
  }
}

}  // namespace
}  // namespace gradloom

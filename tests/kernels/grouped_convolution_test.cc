// Compares grouped and depthwise convolutions whose channels do not fill whole vectors with the reference kernels.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convolution/convolution_desc.h"
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
                        {{1, 72, 3, 4}, 72, 2, {5, 5}, one, {2, 2, 2, 2}, one},
                        // Several groups to a vector, whose number does not fill the last one.
                        {{3, 104, 13, 9}, 104, 13, {3, 3}, {2, 2}, {1, 1, 1, 1}, one},
                        {{9, 40, 3, 3}, 40, 5, {3, 3}, one, {1, 1, 1, 1}, one},
                        {{2, 20, 50}, 20, 5, {5}, {2}, {3, 2}, {2}},
                        {{1, 24, 4, 300}, 24, 6, {2, 7}, {1, 3}, {0, 9, 1, 4}, {2, 1}}};
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
  EXPECT_GE(served, isa == "avx512" ? 24 : isa == "avx2" ? 14 : 0);
}

// Where several groups share a vector, the library's kernels for half a vector are slower.
TEST(GroupedConvolution, SumsGradientsOfSmallGroups) {
  if (BestLoops().name == std::string_view("baseline")) GTEST_SKIP() << "no AVX2";
  const std::vector<int64_t> one{1, 1}, pads{1, 1, 1, 1};
  for (const int64_t group : {12, 24}) {
    const Case c = {{2, 96, 16, 16}, 96, group, {3, 3}, one, pads, one};
    KernelCall call = c.Calls()[3];
    ASSERT_EQ(call.op, "ConvGradWeight");
    ASSERT_TRUE(FindKernel("onednn.ConvGradWeight")->prefers(call));
    EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, "cpu.GroupedConvGradWeight") << group;
  }
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

// In the layouts that a plain convolution prefers: by the library, with padded weights where the channels fill no vector, and by our own
// kernels where the library has only plain loops (three dimensions, transposed, gradients of dilated windows).
TEST(DepthwiseConvolution, IsVectorizedForAnyChannelsAndWindows) {
  if (BestLoops().name == std::string_view("baseline")) GTEST_SKIP() << "no AVX2";
  std::mt19937_64 random(TestSeed());
  const std::vector<int64_t> one{1, 1}, two{2, 2}, pads{1, 1, 1, 1};
  const Case cases[] = {{{2, 88, 12, 12}, 88, 88, {3, 3}, one, pads, one},
                        {{2, 72, 9, 14}, 72, 72, {3, 3}, two, pads, one},
                        {{3, 120, 6, 6}, 120, 120, {5, 5}, one, {2, 2, 2, 2}, one},
                        {{2, 72, 24, 24}, 72, 72, {3, 3}, two, pads, one},
                        {{1, 58, 11, 7}, 58, 58, {3, 3}, one, {2, 2, 2, 2}, two},
                        {{2, 12, 10, 10}, 12, 12, {7, 7}, {3, 2}, {3, 1, 0, 3}, one},
                        {{1, 50, 13, 12}, 50, 50, {3, 5}, {1, 3}, {0, 7, 4, 2}, {3, 2}},
                        {{2, 40, 100}, 40, 40, {5}, {1}, {8, 8}, {4}},
                        {{2, 3, 30}, 3, 3, {4}, {2}, {1, 2}, {1}},
                        {{1, 21, 5, 8, 9}, 21, 21, {3, 3, 3}, {1, 2, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 2}},
                        {{2, 64, 4, 6, 6}, 64, 64, {2, 3, 1}, {2, 1, 1}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}},
                        // Several filters for each channel.
                        {{2, 8, 22, 40}, 16, 8, {22, 1}, one, {0, 0, 0, 0}, one},
                        {{3, 3, 13, 12}, 24, 3, {3, 5}, {1, 2}, {0, 4, 2, 1}, {2, 1}},
                        {{9, 50, 9, 8}, 150, 50, {3, 3}, two, pads, one},
                        {{2, 2, 40}, 140, 2, {6}, {1}, {8, 0}, {1}},
                        {{1, 9, 5, 6, 7}, 36, 9, {3, 2, 3}, {1, 2, 1}, {1, 1, 1, 0, 1, 1}, {1, 1, 1}}};
  for (const Case& c : cases) {
    Layout forward;
    for (KernelCall& call : c.Calls()) {
      SCOPED_TRACE(call.op + " " + c.x.ToString() + " " + c.w().ToString());
      const bool gradient = call.op == "ConvGradWeight", library = IsVectorizedChannelsLast(call);
      ASSERT_TRUE(FindKernel("onednn." + call.op)->prefers(call));
      Layout& w = gradient ? call.outputs[0].layout : call.inputs[1].layout;
      const std::string name = (gradient ? "cpu." : library ? "onednn." : "cpu.Depthwise") + call.op;
      EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, name);
      const Comparison close = {.absolute = 1e-4, .relative = 1e-4, .scale = 0.1};
      ExpectSameAsReference(call, random, close, name);
      if (call.op == "Conv") forward = w;
      if (library && !gradient) continue;
      // Other layouts of the weights, as an optimizer or another entry may keep them.
      for (const Layout& other : {Layout{}, forward, Layout{.blocks = {{0, 8}}}}) {
        w = other;
        ExpectSameAsReference(call, random, close, name);
      }
    }
  }
  // Where the library has only plain loops in bfloat16, operands are widened: for gradients of the input of strided windows, and where it
  // has only plain loops in float32, too.
  int widened = 0;
  for (const Case& c : cases) {
    for (KernelCall& call : c.Calls()) {
      if (call.op == "ConvTranspose") continue;
      SCOPED_TRACE(call.op + " " + c.x.ToString() + " " + c.w().ToString());
      for (auto* operands : {&call.inputs, &call.outputs}) {
        for (OperandType& operand : *operands) operand.dtype = DType::kBfloat16;
      }
      const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
      row->prefers(call);
      row = ChooseKernel(DeviceKind::kCpu, call);
      if (row->name.starts_with("cpu.widened.")) ++widened;
      EXPECT_TRUE(row->name.starts_with("cpu.widened.") || IsVectorizedChannelsLast(call)) << row->name;
      ExpectSameAsReference(call, random, {.absolute = 0.03, .relative = 0.03, .scale = 0.1}, "");
    }
  }
  EXPECT_GT(widened, 0);
  // The library alone would be slow for these.
  for (const KernelCall& call : cases[9].Calls()) EXPECT_FALSE(IsVectorizedChannelsLast(call)) << call.op;
  for (const KernelCall& call : cases[0].Calls()) {
    if (call.op == "Conv") {
      EXPECT_TRUE(IsVectorizedChannelsLast(call));
    }
  }
}

}  // namespace
}  // namespace gradloom

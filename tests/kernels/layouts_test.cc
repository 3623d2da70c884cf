// Compares kernels with channels-innermost operands with the reference kernels, and tests changes of layout.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "runtime/base/windows.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/product_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

OperandType Last(Shape shape) {
  OperandType operand = Float(std::move(shape));
  operand.layout = ChannelsLast(operand.shape.rank());
  return operand;
}

KernelCall Call(const std::string& op, const std::string& domain, std::vector<OperandType> inputs, std::vector<OperandType> outputs,
                Attributes attributes = {}) {
  return {.op = op, .domain = domain, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = std::move(outputs)};
}

// [O, I, kernel ...].
Shape Filters(int64_t outputs, int64_t inputs, const std::vector<int64_t>& kernel) {
  Shape w{outputs, inputs};
  for (const int64_t extent : kernel) w.push_back(extent);
  return w;
}

// oneDNN caches primitives by what they compute and by the size of the thread team that created them. A kernel for one thread must not get
// a primitive that divides the work, and needs the memory, for two.
TEST(Convolution, OneThreadAfterTwo) {
  omp_set_num_threads(2);
  std::mt19937_64 random(TestSeed());
  KernelCall call = Call("ConvGradWeight", "gradloom", {Float({4, 12, 9, 9}), Float({4, 12, 9, 9})}, {Float({12, 12, 1, 1})});
  ASSERT_EQ(FindKernel("onednn.ConvGradWeight")->prefers(call), BestLoops().name != std::string_view("baseline"));
  ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "onednn.ConvGradWeight");
}

TEST(Physical, OneOrderForAllOperands) {
  const auto order = [](const KernelCall& call) { return PhysicalOf(call).has_value(); };
  const Shape x{2, 3, 4, 5};
  EXPECT_TRUE(order(Call("Add", "", {Last(x), Last(x)}, {Last(x)})));
  EXPECT_TRUE(order(Call("Add", "", {Last(x), Float({3, 1, 1})}, {Last(x)})));
  EXPECT_TRUE(order(Call("Add", "", {Last(x), Float({2, 3, 1, 1})}, {Last(x)})));  // N precedes C in both
  EXPECT_FALSE(order(Call("Add", "", {Last(x), Float(x)}, {Last(x)})));
  EXPECT_FALSE(order(Call("Add", "", {Last(x), Float({3, 4, 1})}, {Last(x)})));  // C precedes H in one and follows it in the other
  const PhysicalCall physical = *PhysicalOf(Call("Add", "", {Last(x), Float({3, 1, 1})}, {Last(x)}));
  EXPECT_EQ(physical.call.inputs[0].shape, (Shape{2, 4, 5, 3}));
  EXPECT_EQ(physical.call.inputs[1].shape, (Shape{1, 1, 1, 3}));
  EXPECT_EQ(physical.Axis(1), 3);
  EXPECT_EQ(physical.Axis(2), 1);
}

TEST(ChannelsLast, Pointwise) {
  std::mt19937_64 random(TestSeed());
  for (int rank : {3, 4, 5}) {
    const Shape x = RandomShape(random, rank, 2, 9);
    Shape channels{x[1]}, each{x[0], x[1]};
    for (int i = 2; i < rank; ++i) channels.push_back(1), each.push_back(1);
    ExpectSameAsReference(Call("Relu", "", {Last(x)}, {Last(x)}), random);
    ExpectSameAsReference(Call("Mul", "", {Last(x), Float(channels)}, {Last(x)}), random);
    ExpectSameAsReference(Call("Mul", "", {Float(each), Last(x)}, {Last(x)}), random);
    ExpectSameAsReference(Call("Add", "", {Last(x), Float({})}, {Last(x)}), random);
  }
}

// Sums of values in [low, high], accumulated in double over what both kernels see.
TEST(ChannelsLast, BatchNormalizationByDevices) {
  std::mt19937_64 random(TestSeed());
  for (const Shape& x : {Shape{16, 5}, Shape{300, 70}, Shape{2, 3, 4, 5}, Shape{4, 70, 9, 11}, Shape{8, 16, 40}, Shape{3, 600, 5, 5}}) {
    const OperandType c = Float({x[1]}), sums{DType::kFloat64, {2, x[1]}, {}};
    const double count = static_cast<double>(x.elements() / x[1]);
    for (const OperandType& t : {Float(x), x.rank() > 2 ? Last(x) : Float(x)}) {
      const Comparison how{.absolute = 1e-3, .relative = 1e-5, .low = 0.5, .high = 2};
      ExpectSameAsReference(Call("BatchNormSums", "gradloom", {t}, {sums}), random, how, "cpu.BatchNormSums");
      ExpectSameAsReference(Call("BatchNormGradSums", "gradloom", {t, t, c}, {sums}), random, how, "cpu.BatchNormGradSums");
      // Arbitrary sums correspond to some values, where a negative variance counts as 0.
      ExpectSameAsReference(Call("BatchNormApply", "gradloom", {t, c, c, sums}, {t}, {{"epsilon", 1e-1}, {"count", count}}), random,
                            {.absolute = 1e-4, .relative = 1e-4, .low = 0.5, .high = 2}, "cpu.BatchNormApply");
      ExpectSameAsReference(Call("BatchNormGradApply", "gradloom", {t, t, c, c, c, sums}, {t}, {{"count", count}}), random,
                            {.absolute = 1e-4, .relative = 1e-4, .low = 0.5, .high = 2}, "cpu.BatchNormGradApply");
    }
  }
  // With two float64 samples all operands have the shape of their sums.
  const OperandType two{DType::kFloat64, {2, 5}, {}};
  EXPECT_TRUE(ChooseKernel(DeviceKind::kCpu, Call("BatchNormSums", "gradloom", {two}, {two}))->name.starts_with("reference."));
}

TEST(ChannelsLast, BatchNormalization) {
  std::mt19937_64 random(TestSeed());
  // One part and many; more and fewer channels than a group of registers; whole and partial vectors; more rows than groups; no spatial
  // axes.
  for (const Shape& x :
       {Shape{2, 3, 4, 5}, Shape{4, 70, 9, 11}, Shape{8, 16, 40}, Shape{2, 33, 3, 4, 5}, Shape{3, 600, 5, 5}, Shape{128, 256},
        Shape{5000, 3}, Shape{9, 20, 1, 1}, Shape{300, 2}, Shape{300, 6}, Shape{2, 24, 9, 7}, Shape{2, 58, 5, 5}}) {
    const OperandType c = Float({x[1]});
    const Comparison how{.absolute = 1e-5, .relative = 1e-4, .low = 0.5, .high = 2};
    ExpectSameAsReference(Call("BatchNormTrain", "gradloom", {Last(x), c, c}, {Last(x), c, c, c}, {{"epsilon", 1e-5}}), random, how,
                          "cpu.BatchNormTrain");
    Shape line{x[1]};
    for (int axis = 2; axis < x.rank(); ++axis) line.push_back(1);
    ExpectSameAsReference(Call("BatchNormLine", "gradloom", {Last(x), c, c}, {c, c, OperandType{}, Float(line), Float(line), Float(line)},
                               {{"epsilon", 1e-5}}),
                          random, how, "cpu.BatchNormLine");
    ExpectSameAsReference(Call("BatchNormTrainGrad", "gradloom", {Last(x), Last(x), c, c, c}, {Last(x), c, c}), random,
                          {.absolute = 1e-4, .relative = 1e-4, .scale = 1e-2, .low = 0.5, .high = 2}, "cpu.BatchNormTrainGrad");
    ExpectSameAsReference(Call("BatchNormalization", "", {Last(x), c, c, c, c}, {Last(x)}, {{"epsilon", 1e-5}}), random, how,
                          "cpu.BatchNormalization");
    ExpectSameAsReference(Call("BatchNormalization", "", {Float(x), c, c, c, c}, {Float(x)}, {{"epsilon", 1e-5}}), random, how,
                          "cpu.BatchNormalization");
  }
}

TEST(ChannelsLast, Pooling) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x;
    std::vector<int64_t> kernel, strides, pads;
    bool ceil_mode = false;
  };
  const Case cases[] = {{{3, 4, 8, 8}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
                        {{4, 70, 14, 14}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
                        {{2, 3, 9, 7}, {3, 2}, {1, 2}, {1, 0, 0, 1}, true},
                        {{2, 65, 11}, {3}, {2}, {1, 1}},
                        {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {0, 1, 0, 1, 1, 0}},
                        {{2, 5, 1, 1}, {3, 3}, {1, 1}, {2, 2, 2, 2}},
                        // Few channels: several windows of a row at once.
                        {{64, 6, 28, 28}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
                        {{3, 6, 7, 9}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
                        {{2, 1, 9, 50}, {3, 3}, {3, 3}, {0, 0, 0, 0}},
                        {{2, 15, 9, 5}, {4, 2}, {2, 2}, {0, 0, 0, 0}},
                        {{2, 3, 8, 21}, {1, 2}, {2, 4}, {0, 0, 0, 0}},
                        {{2, 10, 6, 12}, {3, 3}, {1, 1}, {0, 0, 0, 0}},
                        {{3, 7, 40}, {4}, {2}, {0, 0}}};
  // Few distinct values, so that most windows contain their maximum more than once, and some NaN.
  const auto ties = [](int, Tensor& tensor, std::mt19937_64& from) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const int64_t drawn = static_cast<int64_t>(from() % 40);
      tensor.as<float>()[i] = drawn == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(drawn % 4);
    }
    return true;
  };
  for (const Case& c : cases) {
    Attributes attributes = {{"kernel_shape", c.kernel}, {"strides", c.strides}, {"pads", c.pads}, {"ceil_mode", int64_t{c.ceil_mode}}};
    const Windows windows = WindowsOf(attributes, c.x, c.kernel);
    Shape y{c.x[0], c.x[1]};
    for (int dim = 0; dim < windows.rank(); ++dim) y.push_back(windows.Count(dim, c.x[dim + 2], c.ceil_mode));
    ExpectSameAsReference(Call("MaxPool", "", {Last(c.x)}, {Last(y)}, attributes), random, {}, "cpu.MaxPool");
    ExpectSameAsReference(Call("MaxPoolGrad", "gradloom", {Last(c.x), Last(y)}, {Last(c.x)}, attributes), random, {}, "cpu.MaxPoolGrad");
    ExpectSameAsReference(Call("MaxPool", "", {Last(c.x)}, {Last(y)}, attributes), random, {.fill = ties}, "cpu.MaxPool");
    const auto tied_x = [&](int input, Tensor& tensor, std::mt19937_64& from) { return input == 0 && ties(input, tensor, from); };
    ExpectSameAsReference(Call("MaxPoolGrad", "gradloom", {Last(c.x), Last(y)}, {Last(c.x)}, attributes), random, {.fill = tied_x},
                          "cpu.MaxPoolGrad");
    for (int64_t include : {0, 1}) {
      attributes.set("count_include_pad", include);
      ExpectSameAsReference(Call("AveragePool", "", {Last(c.x)}, {Last(y)}, attributes), random, {}, "cpu.AveragePool");
      ExpectSameAsReference(Call("AveragePoolGrad", "gradloom", {Last(y)}, {Last(c.x)}, attributes), random, {}, "cpu.AveragePoolGrad");
    }
  }
}

TEST(ChannelsLast, ReductionsKeepTheOrderOfResults) {
  std::mt19937_64 random(TestSeed());
  const Shape x{3, 20, 6, 7};
  const auto reduce = [&](std::vector<int64_t> axes, OperandType y, bool keep) {
    const auto n = static_cast<int64_t>(axes.size());
    Comparison how{.absolute = 1e-4, .relative = 1e-5};
    how.fill = [axes](int input, Tensor& tensor, std::mt19937_64&) {
      if (input != 1) return false;
      std::copy(axes.begin(), axes.end(), tensor.as<int64_t>().begin());
      return true;
    };
    const KernelCall call = Call("ReduceSum", "", {Last(x), Plain(DType::kInt64, {n})}, {std::move(y)}, {{"keepdims", int64_t{keep}}});
    ExpectSameAsReference(call, random, how, "cpu.ReduceSum");
  };
  reduce({0, 2, 3}, Float({20}), false);
  reduce({2, 3}, Float({3, 20, 1, 1}), true);
  reduce({1}, Float({3, 1, 6, 7}), true);
  reduce({0}, Last({1, 20, 6, 7}), true);
  ExpectSameAsReference(Call("GlobalAveragePool", "", {Last(x)}, {Float({3, 20, 1, 1})}), random, {}, "cpu.GlobalAveragePool");
  ExpectSameAsReference(Call("GlobalMaxPool", "", {Last(x)}, {Float({3, 20, 1, 1})}), random, {}, "cpu.GlobalMaxPool");
  ExpectSameAsReference(Call("GlobalAveragePool", "", {Float(x)}, {Float({3, 20, 1, 1})}), random, {}, "cpu.GlobalAveragePool");
  // Reducing H and W, which follow C in memory, would change the order of the results.
  EXPECT_NE(Rejection(*FindKernel("cpu.ReduceSum"), Call("ReduceSum", "", {Last(x)}, {Float({20, 6})})), "");
}

TEST(ChannelsLast, ConcatAndSplit) {
  std::mt19937_64 random(TestSeed());
  for (int64_t axis : {0, 1, 2, -1}) {
    Shape a{2, 3, 4, 5}, b = a, both = a;
    const int at = static_cast<int>(axis < 0 ? axis + 4 : axis);
    b[at] = 7;
    both[at] = a[at] + b[at];
    ExpectSameAsReference(Call("Concat", "", {Last(a), Last(b)}, {Last(both)}, {{"axis", axis}}), random, {}, "cpu.Concat");
    Comparison how;
    how.fill = [&](int input, Tensor& tensor, std::mt19937_64&) {
      if (input != 1) return false;
      tensor.as<int64_t>()[0] = a[at];
      tensor.as<int64_t>()[1] = b[at];
      return true;
    };
    const KernelCall split = Call("Split", "", {Last(both), Plain(DType::kInt64, {2})}, {Last(a), Last(b)}, {{"axis", axis}});
    ExpectSameAsReference(split, random, how, "cpu.Split");
  }
}

// A convolution computes the same in whatever layouts it prefers.
TEST(ChannelsLast, ConvolutionsInPreferredLayouts) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x, w;
    std::vector<int64_t> strides, pads;
    int64_t group = 1;
  };
  const Case cases[] = {{{2, 3, 9, 9}, {16, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}},
                        {{2, 16, 8, 8}, {32, 16, 3, 3}, {2, 2}, {1, 1, 1, 1}},
                        {{2, 32, 7, 5}, {64, 32, 1, 1}, {1, 1}, {0, 0, 0, 0}},
                        {{2, 16, 8, 8}, {16, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, 16},
                        {{2, 32, 8, 8}, {32, 16, 3, 3}, {1, 1}, {1, 1, 1, 1}, 2},
                        {{2, 8, 20}, {16, 8, 3}, {1}, {1, 1}},
                        {{1, 8, 5, 6, 7}, {8, 8, 3, 3, 3}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}}};
  int wishes = 0;
  for (const Case& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"group", c.group}};
    const Shape y = Convolved(c.x, c.w, attributes);
    KernelCall calls[] = {Call("Conv", "", {Float(c.x), Float(c.w), Float({c.w[0]})}, {Float(y)}, attributes),
                          Call("ConvGradInput", "gradloom", {Float(y), Float(c.w)}, {Float(c.x)}, attributes),
                          Call("ConvGradWeight", "gradloom", {Float(c.x), Float(y)}, {Float(c.w)}, attributes)};
    for (KernelCall& call : calls) {
      const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
      ASSERT_NE(row, nullptr);
      ASSERT_NE(row->prefers, nullptr) << row->name;
      if (!row->prefers(call)) continue;
      ++wishes;
      row = ChooseKernel(DeviceKind::kCpu, call);  // the one with the preference, or an earlier row
      ASSERT_NE(row, nullptr);
      ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, std::string(row->name));
    }
  }
  EXPECT_GE(wishes, 6) << "a library that no longer likes channels innermost: look whether layouts still pay";
}

// The input gradient where the input has few channels, in the layouts that oneDNN prefers.
TEST(ChannelsLast, InputGradientsOfFewChannels) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x, w;
    std::vector<int64_t> strides, pads, dilations;
  };
  const Case cases[] = {
      {{3, 6, 14, 14}, {16, 6, 5, 5}, {1, 1}, {0, 0, 0, 0}, {1, 1}}, {{2, 4, 9, 12}, {20, 4, 3, 5}, {1, 1}, {1, 2, 1, 2}, {2, 1}},
      {{2, 3, 17, 30}, {8, 3, 7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}},  {{2, 12, 12, 11}, {33, 12, 5, 5}, {2, 2}, {2, 1, 0, 2}, {1, 1}},
      {{2, 9, 9, 16}, {16, 9, 1, 3}, {4, 1}, {0, 1, 0, 1}, {1, 1}},  {{2, 5, 40}, {12, 5, 9}, {3}, {4, 0}, {1}}};
  int served = 0;
  for (const Case& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}};
    const Shape y = Convolved(c.x, c.w, attributes);
    KernelCall call = Call("ConvGradInput", "gradloom", {Float(y), Float(c.w)}, {Float(c.x)}, attributes);
    EXPECT_NE(Rejection(*FindKernel("cpu.ConvGradInput"), call), "") << "plain operands";
    if (!FindKernel("onednn.ConvGradInput")->prefers(call)) continue;
    ++served;
    EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, "cpu.ConvGradInput");
    ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "cpu.ConvGradInput");
    call.inputs[1].layout = {};
    ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "cpu.ConvGradInput");
  }
  // Without AVX-512 the library prefers channels innermost for fewer of the cases, and without AVX2 for none.
  const std::string_view isa = BestLoops().name;
  EXPECT_GE(served, isa == "avx512" ? 4 : isa == "avx2" ? 3 : 0);
}

// The weight gradient of a depthwise convolution: windows of any size, strides, rows and columns outside all windows, and channels that do
// not fill whole vectors.
TEST(ChannelsLast, DepthwiseWeightGradients) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x;
    std::vector<int64_t> kernel, strides, pads, dilations;
  };
  const Case cases[] = {{{2, 96, 8, 8}, {7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}},  {{3, 70, 2, 2}, {7, 7}, {1, 1}, {3, 3, 3, 3}, {1, 1}},
                        {{2, 21, 9, 12}, {3, 5}, {2, 3}, {0, 2, 1, 0}, {1, 1}}, {{2, 16, 11, 10}, {3, 3}, {1, 2}, {2, 0, 2, 1}, {2, 3}},
                        {{2, 2, 5, 6}, {1, 1}, {3, 4}, {0, 0, 0, 0}, {1, 1}},   {{2, 130, 20}, {9}, {2}, {8, 0}, {1}}};
  for (const Case& c : cases) {
    const int64_t channels = c.x[1];
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", channels}};
    const Shape w = Filters(channels, 1, c.kernel), y = Convolved(c.x, w, attributes);
    const KernelCall call = Call("ConvGradWeight", "gradloom", {Last(c.x), Last(y)}, {Float(w)}, attributes);
    ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4}, "cpu.ConvGradWeight");
  }
}

// The weight gradient of dense convolutions: chunks of rows and of images, the last one smaller; channels that do not fill a panel; windows
// outside the input; points outside all windows; and weights in any layout, also with padding.
TEST(ChannelsLast, WeightGradientsOfDenseConvolutions) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x;
    int64_t outputs;
    std::vector<int64_t> kernel, strides, pads, dilations;
  };
  const Case cases[] = {{{2, 64, 20, 20}, 64, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
                        {{7, 40, 8, 9}, 50, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
                        {{3, 35, 21, 18}, 33, {3, 5}, {2, 3}, {2, 0, 1, 3}, {2, 1}},
                        {{2, 200, 9, 9}, 180, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
                        {{3, 200, 12, 12}, 170, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
                        {{2, 170, 5, 4}, 200, {1, 1}, {2, 3}, {1, 2, 1, 2}, {1, 1}},
                        {{5, 64, 2, 2}, 48, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
                        {{2, 96, 1, 1}, 64, {3, 3}, {1, 1}, {3, 3, 3, 3}, {1, 1}},
                        {{5, 64, 17, 16}, 72, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
                        {{2, 40, 23, 20}, 56, {5, 4}, {2, 1}, {2, 1, 2, 1}, {1, 1}},
                        {{2, 48, 301}, 64, {9}, {3}, {8, 0}, {1}},
                        {{2, 48, 300}, 64, {9}, {1}, {8, 0}, {1}}};
  for (const Case& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}};
    const Shape w = Filters(c.outputs, c.x[1], c.kernel), y = Convolved(c.x, w, attributes);
    for (const char* layout : {"plain", "blocks"}) {
      OperandType weights = Float(w);
      if (layout == std::string_view("blocks")) weights.layout = Layout::FromString(w.rank() == 4 ? "0231:0x24" : "021:0x24");
      const KernelCall call = Call("ConvGradWeight", "gradloom", {Last(c.x), Last(y)}, {weights}, attributes);
      // Without AVX2 the library's kernel is used. With AVX-512 it is used as well, for unstrided windows over large operands with few
      // sums.
      const std::string_view isa = BestLoops().name;
      const bool strided = *std::max_element(c.strides.begin(), c.strides.end()) > 1;
      if (isa == "baseline" || (isa == "avx512" && !strided && w.elements() * 16 < c.x.elements() + y.elements())) {
        EXPECT_NE(Rejection(*FindKernel("cpu.DenseConvGradWeight"), call), "");
        continue;
      }
      ExpectSameAsReference(call, random, {.absolute = 1e-3, .relative = 1e-4}, "cpu.DenseConvGradWeight");
    }
  }
}

// The weight gradient of dense convolutions with the library's kernel, in parts of images and rows: fewer images than parts, rows whose
// windows see only padding, last windows that end before the input does, and strided windows of one point over few channels.
TEST(ChannelsLast, WeightGradientsInParts) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x;
    int64_t outputs;
    std::vector<int64_t> kernel, strides, pads, dilations;
    int64_t group;
  };
  const Case cases[] = {{{1, 3, 40, 41}, 16, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
                        {{2, 3, 64, 50}, 32, {7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, 1},
                        {{7, 8, 30, 30}, 16, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},
                        {{35, 8, 30, 30}, 8, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
                        {{1, 4, 50, 30}, 8, {3, 5}, {3, 1}, {0, 4, 0, 0}, {2, 2}, 1},
                        {{8, 6, 12, 12}, 12, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 1},
                        {{8, 3, 13, 11}, 8, {1, 1}, {3, 2}, {0, 0, 0, 0}, {1, 1}, 1},
                        {{1, 8, 40, 40}, 16, {3, 3}, {1, 1}, {12, 1, 12, 1}, {12, 1}, 1},
                        {{1, 4, 9, 30}, 16, {3, 3}, {1, 1}, {6, 6, 6, 6}, {1, 1}, 1},
                        {{1, 8, 16, 17, 18}, 8, {3, 3, 3}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, 1},
                        {{2, 4, 15, 16, 12}, 16, {3, 2, 3}, {2, 1, 2}, {1, 0, 0, 1, 1, 1}, {1, 1, 1}, 1},
                        {{1, 8, 3000}, 16, {5}, {1}, {2, 2}, {1}, 1},
                        {{2, 32, 30, 30}, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2}};
  for (const Case& c : cases) {
    const Attributes attributes = {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.group}};
    const Shape w = Filters(c.outputs, c.x[1] / c.group, c.kernel), y = Convolved(c.x, w, attributes);
    KernelCall call = Call("ConvGradWeight", "gradloom", {Float(c.x), Float(y)}, {Float(w)}, attributes);
    const Comparison close = {.absolute = 1e-3, .relative = 1e-4};
    ExpectSameAsReference(call, random, close, "onednn.ConvGradWeight");
    if (!FindKernel("onednn.ConvGradWeight")->prefers(call)) continue;
    if (Rejection(*FindKernel("onednn.ConvGradWeight"), call).empty()) ExpectSameAsReference(call, random, close, "onednn.ConvGradWeight");
  }
}

// Winograd kernels: rows and columns that do not fill a tile, all paddings, tiles in several groups and parts, few tiles with many filters,
// and panels of one vector. The bits do not depend on the number of threads.
TEST(ChannelsLast, WinogradConvolutions) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    Shape x;
    int64_t outputs;
    std::vector<int64_t> pads;
  };
  const Case cases[] = {{{2, 32, 20, 20}, 32, {1, 1, 1, 1}}, {{3, 64, 13, 11}, 48, {1, 1, 1, 1}}, {{4, 48, 9, 10}, 80, {0, 2, 1, 0}},
                        {{5, 32, 30, 31}, 64, {2, 2, 2, 2}}, {{8, 96, 7, 7}, 352, {1, 1, 1, 1}},  {{12, 208, 6, 5}, 144, {1, 0, 1, 2}},
                        {{64, 32, 3, 4}, 160, {1, 1, 1, 1}}, {{1, 144, 21, 24}, 32, {0, 0, 0, 0}}};
  const Layout weights = {.order = {0, 2, 3, 1}, .blocks = {{0, BestLoops().matrix_panel / 2}}};
  for (const Case& c : cases) {
    const Attributes attributes = {{"pads", c.pads}};
    const Shape w{c.outputs, c.x[1], 3, 3};
    const Windows windows = WindowsOf(attributes, c.x, {3, 3});
    const Shape y{c.x[0], c.outputs, windows.Count(0, c.x[2], false), windows.Count(1, c.x[3], false)};
    KernelCall calls[] = {Call("Conv", "", {Float(c.x), Float(w), Float({c.outputs})}, {Float(y)}, attributes),
                          Call("Conv", "", {Float(c.x), Float(w)}, {Float(y)}, attributes),
                          Call("ConvGradInput", "gradloom", {Float(y), Float(w)}, {Float(c.x)}, attributes),
                          Call("ConvGradWeight", "gradloom", {Float(c.x), Float(y)}, {Float(w)}, attributes)};
    for (KernelCall& call : calls) {
      const std::string name = "cpu.Winograd" + call.op;
      EXPECT_NE(Rejection(*FindKernel(name), call), "") << "plain operands";
      ASSERT_TRUE(FindKernel("onednn." + call.op)->prefers(call));
      ASSERT_EQ(ChooseKernel(DeviceKind::kCpu, call)->name, name) << c.x.ToString();
      for (const auto* operands : {&call.inputs, &call.outputs}) {
        for (const OperandType& operand : *operands) {
          if (operand.shape == w) {
            EXPECT_EQ(operand.layout, weights);
          }
        }
      }
      ExpectSameAsReference(call, random, {.absolute = 1e-4, .relative = 1e-4, .scale = 0.1}, name);
    }
  }
}

// Transposed convolutions of the same shapes have no Winograd kernel, so they must not get its layouts.
TEST(ChannelsLast, TransposedConvolutionsWithoutWinograd) {
  std::mt19937_64 random(TestSeed());
  for (const int64_t outputs : {32, 64}) {
    const Shape x{2, 32, 22, 22}, w{32, outputs, 3, 3}, y{2, outputs, 24, 24};
    for (const bool bias : {false, true}) {
      std::vector<OperandType> inputs{Float(x), Float(w)};
      if (bias) inputs.push_back(Float({outputs}));
      KernelCall call = Call("ConvTranspose", "", inputs, {Float(y)}, {});
      FindKernel("onednn.ConvTranspose")->prefers(call);
      const KernelRow* const row = ChooseKernel(DeviceKind::kCpu, call);
      ASSERT_NE(row, nullptr) << outputs;
      ExpectSameAsReference(call, random, {.absolute = 1e-3, .relative = 1e-4}, std::string(row->name));
    }
  }
}

// Cases with little or no gain: one point per tile, few tiles for many filters, few channels, channels that do not fill whole vectors, and
// anything but a 3 x 3 window with stride 1.
TEST(ChannelsLast, WinogradRejectsUnprofitableCalls) {
  const auto rejects = [](Shape x, int64_t outputs, std::vector<int64_t> kernel, Attributes attributes) {
    const Windows windows = WindowsOf(attributes, x, kernel);
    const Shape y{x[0], outputs, windows.Count(0, x[2], false), windows.Count(1, x[3], false)};
    const Shape w{outputs, x[1] / attributes.Int("group", 1), kernel[0], kernel[1]};
    KernelCall call = Call("Conv", "", {Last(x), Float(w)}, {Last(y)}, std::move(attributes));
    call.inputs[1].layout = {.order = {0, 2, 3, 1}, .blocks = {{0, BestLoops().matrix_panel / 2}}};
    return !Rejection(*FindKernel("cpu.WinogradConv"), call).empty();
  };
  const std::vector<int64_t> one{1, 1, 1, 1};
  EXPECT_FALSE(rejects({8, 64, 16, 16}, 64, {3, 3}, {{"pads", one}}));
  EXPECT_TRUE(rejects({400, 64, 1, 1}, 64, {3, 3}, {{"pads", one}}));
  EXPECT_TRUE(rejects({1, 512, 7, 7}, 512, {3, 3}, {{"pads", one}}));
  EXPECT_TRUE(rejects({8, 16, 16, 16}, 16, {3, 3}, {{"pads", one}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 66, {3, 3}, {{"pads", one}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 64, {3, 5}, {{"pads", one}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 64, {3, 3}, {{"pads", one}, {"strides", std::vector<int64_t>{2, 2}}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 64, {3, 3}, {{"pads", one}, {"dilations", std::vector<int64_t>{2, 2}}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 64, {3, 3}, {{"pads", one}, {"group", int64_t{2}}}));
  EXPECT_TRUE(rejects({8, 64, 16, 16}, 64, {3, 3}, {{"pads", std::vector<int64_t>{3, 3, 3, 3}}}));
}

TEST(ChannelsLast, LocalResponse) {
  std::mt19937_64 random(TestSeed());
  const Attributes windows[] = {{{"size", int64_t{5}}, {"alpha", 0.3f}, {"beta", 0.75f}, {"bias", 1.5f}},
                                {{"size", int64_t{4}}, {"alpha", 0.1f}},
                                {{"size", int64_t{1}}, {"alpha", 0.5f}, {"beta", 0.5f}}};
  for (const Shape& x : {Shape{2, 3}, Shape{3, 20, 70}, Shape{2, 5, 8, 8}, Shape{2, 33, 9, 11}, Shape{1, 2, 3, 4, 5}}) {
    for (const Attributes& attributes : windows) {
      for (const OperandType& t : {Float(x), x.rank() > 2 ? Last(x) : Float(x)}) {
        ExpectSameAsReference(Call("LRN", "", {t}, {t}, attributes), random, {.absolute = 1e-5, .relative = 1e-5}, "cpu.LRN");
        ExpectSameAsReference(Call("LrnGrad", "gradloom", {t, t}, {t}, attributes), random, {.absolute = 1e-5, .relative = 1e-5},
                              "cpu.LrnGrad");
      }
    }
  }
}

// Offset tables of the innermost dimensions are cut if they would become long. The order of elements does not change.
TEST(Layouts, ElementsLieAtTheirOffsets) {
  for (const Shape& shape : {Shape{5, 3, 3, 3}, Shape{3, 70, 9, 9}, Shape{2, 5, 1, 5000}}) {
    for (const char* name : {"0231", "3210", "0123:1x8,0x8", "0231:0x16", "1023:1x4,0x8"}) {
      const Layout layout = Layout::FromString(name);
      std::vector<uint16_t> logical(static_cast<size_t>(shape.elements())), back(logical.size());
      std::vector<uint16_t> wanted(static_cast<size_t>(layout.elements(shape))), got(wanted.size(), 7);
      for (size_t i = 0; i < logical.size(); ++i) {
        logical[i] = static_cast<uint16_t>(i + 1);
        const auto n = static_cast<int64_t>(i);
        const std::vector<int64_t> index{n / (shape[1] * shape[2] * shape[3]), n / (shape[2] * shape[3]) % shape[1],
                                         n / shape[3] % shape[2], n % shape[3]};
        wanted[static_cast<size_t>(layout.Offset(shape, index))] = logical[i];
      }
      ToLayout(layout, shape, 2, logical.data(), got.data());
      EXPECT_EQ(got, wanted) << name << " of " << shape.ToString();
      FromLayout(layout, shape, 2, got.data(), back.data());
      EXPECT_EQ(back, logical) << name << " of " << shape.ToString();
    }
  }
}

// Elements of 32 bits, and of 16 bits, also in pairs.
TEST(Reorder, BetweenPlainPermutedAndBlocked) {
  const Shape shape{16, 24, 3, 5};
  const char* names[] = {"plain",        "0231",     "3210",         "0123:1x8",         "0123:1x8,0x8",
                         "0123:0x8,1x8", "0231:0x8", "1023:1x4,0x8", "0231:1x4,0x8,1x2", "1230:0x8,1x8,0x2"};
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const int64_t bytes = DTypeBytes(dtype);
    for (const char* from : names) {
      for (const char* to : names) {
        KernelCall call = Call("Reorder", "gradloom", {Plain(dtype, shape)}, {Plain(dtype, shape)});
        call.inputs[0].layout = Layout::FromString(from);
        call.outputs[0].layout = Layout::FromString(to);
        if (Rejection(*FindKernel("cpu.Reorder"), call) != "") {
          // 8 and 4 nest, but a block of 8 does not align with blocks of 4 and 2.
          EXPECT_TRUE(std::string(from).find("1x4") != std::string::npos || std::string(to).find("1x4") != std::string::npos) << from << to;
          continue;
        }
        Tensor x(dtype, shape), stored(dtype, shape), got(dtype, shape), wanted(dtype, shape);
        for (int64_t i = 0; i < x.elements(); ++i)
          std::memcpy(static_cast<std::byte*>(x.data()) + i * bytes, &i, static_cast<size_t>(bytes));
        ToLayout(call.inputs[0].layout, shape, bytes, x.data(), stored.data());
        ToLayout(call.outputs[0].layout, shape, bytes, x.data(), wanted.data());
        for (int threads : {1, 3}) {
          call.threads = threads;
          const void* inputs[] = {stored.data()};
          void* outputs[] = {got.data()};
          MakeCpuKernel(*FindKernel("cpu.Reorder"), call)->Run(inputs, outputs, nullptr, nullptr);
          EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(got.bytes())), 0) << from << " to " << to;
        }
      }
    }
  }
}

TEST(Reorder, PaddingBecomesZero) {
  const Shape shape{13, 6, 3, 2};
  for (const char* name : {"0123:0x8", "0231:0x24", "0123:1x8,0x8", "0231:1x4", "1023:0x16,1x2"}) {
    for (const char* flat : {"plain", "0231"}) {
      OperandType a = Float(shape), b = Float(shape);
      a.layout = Layout::FromString(flat);
      b.layout = Layout::FromString(name);
      Tensor x(DType::kFloat32, shape), in(DType::kFloat32, shape), back(DType::kFloat32, shape);
      for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(i + 1);
      ToLayout(a.layout, shape, 4, x.data(), in.data());
      std::vector<float> wanted(static_cast<size_t>(b.layout.elements(shape))), got(wanted.size(), -1);
      ToLayout(b.layout, shape, 4, x.data(), wanted.data());
      const auto run = [](const OperandType& from, const OperandType& to, const void* source, void* target) {
        const KernelCall call = Call("Reorder", "gradloom", {from}, {to});
        const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
        ASSERT_NE(row, nullptr);
        MakeCpuKernel(*row, call)->Run(&source, &target, nullptr, nullptr);
      };
      run(a, b, in.data(), got.data());
      EXPECT_EQ(got, wanted) << flat << " to " << name;
      run(b, a, got.data(), back.data());
      EXPECT_EQ(std::memcmp(back.data(), in.data(), static_cast<size_t>(in.bytes())), 0) << name << " to " << flat;
    }
  }
}

// Blocks of pairs with padding, from each order in which a kernel merges rows or transposes pairs, and from others.
TEST(Reorder, PairsWithPadding) {
  for (const Shape& shape : {Shape{104, 40, 1, 1}, Shape{50, 7, 3, 2}, Shape{5, 70, 2, 3}, Shape{33, 36, 1, 4}}) {
    for (const char* name : {"0231:0x48,1x2", "1230:1x32,0x2", "0231:1x8,0x16,1x2", "1230:0x16,1x64,0x2"}) {
      for (const char* flat : {"plain", "0231", "1230"}) {
        KernelCall call = Call("Reorder", "gradloom", {Plain(DType::kBfloat16, shape)}, {Plain(DType::kBfloat16, shape)});
        call.inputs[0].layout = Layout::FromString(flat);
        call.outputs[0].layout = Layout::FromString(name);
        std::vector<uint16_t> x(static_cast<size_t>(shape.elements())), stored(x.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i + 1);
        ToLayout(call.inputs[0].layout, shape, 2, x.data(), stored.data());
        std::vector<uint16_t> wanted(static_cast<size_t>(call.outputs[0].layout.elements(shape))), got(wanted.size());
        ToLayout(call.outputs[0].layout, shape, 2, x.data(), wanted.data());
        for (const int threads : {1, 3}) {
          call.threads = threads;
          std::fill(got.begin(), got.end(), uint16_t{0xFFFF});
          const void* inputs[] = {stored.data()};
          void* outputs[] = {got.data()};
          const KernelRow& row = *ChooseKernel(DeviceKind::kCpu, call);
          MakeCpuKernel(row, call)->Run(inputs, outputs, nullptr, nullptr);
          EXPECT_EQ(got, wanted) << shape.ToString() << " " << flat << " to " << name << " by " << row.name;
          // Weights with one dimension of channels contiguous are not copied element by element.
          const bool contiguous = std::string_view(flat) != "plain" || shape[2] * shape[3] == 1;
          if (contiguous && std::string_view(name) == "0231:0x48,1x2" && shape[1] % 2 == 0) {
            EXPECT_EQ(row.name, "cpu.Reorder") << flat;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
